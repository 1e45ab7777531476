"""Adapters of Lightning's callbacks; `adapt` chooses the one for a callback."""

from __future__ import annotations

import importlib
import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from trainer_hooks.adapters.callback_adapter import (
    ForeignProgressBar,
    HostedCallback,
    choose_adapter,
)
from trainer_hooks.adapters.hook_names import LIGHTNING_NAMES
from trainer_hooks.adapters.lightning.package import (
    LIGHTNING_PACKAGES,
    enum_member,
    lightning_package_of,
)
from trainer_hooks.adapters.lightning.trainer_proxy import (
    divide_loss,
    get_module_proxy,
    get_trainer_proxy,
    unwrap_proxy,
)
from trainer_hooks.callback import Callback
from trainer_hooks.callbacks import (
    BatchSizeFinder,
    Checkpoint,
    EarlyStopping,
    LearningRateFinder,
    ModelSummary,
    Timer,
)
from trainer_hooks.callbacks.base import WeightOwner, require_no_owner
from trainer_hooks.module.optimization import LRSchedulerConfig

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_hooks.hooks.band import Band

BASES = frozenset(f"{package}.callbacks.callback.Callback" for package in LIGHTNING_PACKAGES)
"""The base class of callbacks, whose empty methods are not called."""

SAME_HOOKS = frozenset(hook for hook, name in LIGHTNING_NAMES.items() if name == "same")
"""Hooks that have one name and one meaning in both frameworks."""

SAVER_HOOKS = {
    "on_train_epoch_end": "on_epoch_checkpoint",
    "on_train_batch_end": "on_batch_checkpoint",
}
"""Lightning's hook of a saver, and the later hook of ours that calls it: saved earlier, a resume
would fire the hook again."""

_READS_COUNT = {
    f"on_{stage}_batch_start": tuple(
        f"on_{stage}_{moment}" for moment in ("batch_end", "epoch_end", "end")
    )
    for stage in ("validation", "test", "predict")
}
_READS_COUNT["on_validation_batch_start"] += ("on_train_epoch_end", "on_train_end", "on_fit_end")
"""By hook at which the batches of an evaluation are counted, the later ones that read the count."""


class LightningAdapter(HostedCallback):
    """Call the hooks that a callback of Lightning overrides at the moments they have there.

    A saver's `on_train_epoch_end` and `on_train_batch_end` are called at the hooks for saving, and
    what it saves after a validation of a fit waits for the next of these. `teardown` is left out
    after an exception, as in Lightning.
    """

    framework: ClassVar[str] = "lightning"
    bases: ClassVar[frozenset[str]] = BASES

    def __init__(self, guest: Any) -> None:
        super().__init__(guest)
        self._targets: tuple[Any, Any] = (None, None)
        self._proxies: tuple[Any, Any] = (None, None)
        self._has_validated = False
        self._kept_batch_end: tuple[Any, ...] = (None, None, -1)

    # --- methods of our Checkpoint, called only where the foreign callback is a saver ---

    @property
    def has_named_folder(self) -> bool:
        """Whether a saver's files are looked for in the folder that it names: always True."""
        return True

    @property
    def notifies_loggers(self) -> bool:
        """Whether a saver calls the loggers' `after_save_checkpoint` itself, as ModelCheckpoint."""
        return hasattr(self.guest, "_save_checkpoint")

    def folders(self) -> list[str]:
        """Return the folder that a saver writes to, if it has one yet."""
        # ModelCheckpoint sets it in its setup, unless the user named a folder
        folder = getattr(self.guest, "dirpath", None)
        return [] if folder is None else [str(folder)]

    def candidates(self, trainer: Any) -> list[str]:  # noqa: ARG002 - as of a saver
        """Return the checkpoint files in a saver's folder."""
        return [
            str(file) for folder in self.folders() for file in sorted(Path(folder).glob("*.ckpt"))
        ]

    def save_now(self, trainer: Any, module: Any) -> None:  # noqa: ARG002 - as of a saver
        """Write a requested checkpoint into a saver's folder, beside its own files."""
        moment = f"epoch={trainer.current_epoch}-step={trainer.global_step}"
        for folder in self.folders():
            trainer.save_checkpoint(Path(folder, f"requested-{moment}.ckpt"))

    def save_before_leaving(self, trainer: Any, module: Any) -> bool:
        """Save because a signal ends the process; return whether there is a folder for it."""
        self.save_now(trainer, module)
        return bool(self.folders())

    # --- hooks ---

    def attach_module(self, module: Any) -> None:
        """Bind the callback's `log` and `log_dict` to the module of the run, as Lightning does."""
        super().attach_module(module)
        if module is None:
            self._targets = self._proxies = (None, None)
        attributes = vars(self.guest)
        for name in ("log", "log_dict"):
            if module is not None:
                attributes[name] = getattr(unwrap_proxy(module), name)
            else:
                # or a copy or pickle of the callback would take the module along
                attributes.pop(name, None)

    def translated(self, hook: str) -> Callable[..., object] | None:
        """Return the function to call at `hook`, or None if the callback has no method for it."""
        # the class that `hosting` made for a saver also derives from Checkpoint, by `_COUNTERPARTS`
        if isinstance(self, Checkpoint):
            call = self._saver_hook(hook)
            if call is not None:
                return call
            if hook in SAVER_HOOKS:
                return None
        if hook not in SAME_HOOKS or not self.guest_has(hook):
            needs_count = any(map(self.guest_has, _READS_COUNT.get(hook, ())))
            return self._count_batch if needs_count else None
        method = getattr(self.guest, hook)
        if hook in _READS_COUNT:
            return self._after_counting(method)
        if hook == "on_train_batch_end":
            return self._after_dividing(method)
        # callbacks compare the stage with a member of TrainerFn or with text: the member is both
        if hook == "setup":
            return self._with_stage(method)
        if hook == "teardown":
            return partial(self._call_unless_interrupted, self._with_stage(method))
        return self.keeping_opaque_keys(hook, self._with_proxies(method))

    def _count_batch(
        self, trainer: Any, module: Any, _batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        if trainer is not self._targets[0] or module is not self._targets[1]:
            self._make_proxies(trainer, module)
        self._proxies[0].count_evaluation_batch(dataloader_idx, batch_idx)

    def _after_counting(self, method: Callable[..., object]) -> Callable[..., object]:
        handle = self._with_proxies(method)

        def call(trainer: Any, module: Any, *arguments: Any) -> None:
            self._count_batch(trainer, module, *arguments)
            handle(trainer, module, *arguments)

        return call

    def _after_dividing(self, method: Callable[..., object]) -> Callable[..., object]:
        handle = self._with_proxies(method)

        def call(trainer: Any, module: Any, outputs: Any, *rest: Any) -> None:
            handle(trainer, module, divide_loss(trainer, outputs), *rest)

        return call

    def _with_proxies(self, method: Callable[..., object]) -> Callable[..., object]:
        """Return `method` of the callback as a function of our trainer and module."""

        def call(trainer: Any, module: Any, *arguments: Any) -> None:
            # the proxies are looked up once a run: this is called for every batch
            targets = self._targets
            if trainer is not targets[0] or module is not targets[1]:
                self._make_proxies(trainer, module)
            method(*self._proxies, *arguments)

        return call

    def _make_proxies(self, trainer: Any, module: Any) -> None:
        self._targets = trainer, module
        self._proxies = (
            get_trainer_proxy(trainer, self.guest),
            get_module_proxy(module, trainer, self.guest),
        )

    def _with_stage(self, method: Callable[..., object]) -> Callable[..., object]:
        handle, package = self._with_proxies(method), lightning_package_of(self.guest)

        def call(trainer: Any, module: Any, stage: str) -> None:
            handle(trainer, module, enum_member(package, "TrainerFn", stage))

        return call

    def _call_unless_interrupted(
        self, handle: Callable[..., object], trainer: Any, module: Any, stage: str
    ) -> None:
        if not trainer.interrupted:
            handle(trainer, module, stage)

    # --- savers ---

    def _saver_hook(self, hook: str) -> Callable[..., object] | None:
        """Return a saver's function for a hook: it keeps the call, or makes the kept one."""
        if hook == "on_validation_end" and self.guest_has(hook):
            return self._put_off_saving
        if hook == "on_epoch_checkpoint":
            return self._saving_call("on_train_epoch_end", takes_batch=False)
        if hook == "on_batch_checkpoint":
            return self._saving_call("on_train_batch_end", takes_batch=True)
        if hook == "on_train_batch_end" and self.guest_has(hook):
            return self._keep_batch_end
        return None

    def _keep_batch_end(
        self, trainer: Any, _module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Keep the arguments of `on_train_batch_end`, which the hook for saving does not get."""
        self._kept_batch_end = (divide_loss(trainer, outputs), batch, batch_idx)

    def _put_off_saving(self, trainer: Any, module: Any) -> None:
        # saved in here, the end of this validation would be fired once more after a resume
        if trainer.state.fn != "fit" or trainer.sanity_checking:
            self._with_proxies(self.guest.on_validation_end)(trainer, module)
        else:
            self._has_validated = True

    def _saving_call(self, name: str, *, takes_batch: bool) -> Callable[..., object] | None:
        """Return a function that calls a saver's method `name`, and a validation's end put off."""
        validates = self.guest_has("on_validation_end")
        if not validates and not self.guest_has(name):
            return None
        validation_end = self._with_proxies(self.guest.on_validation_end) if validates else None
        method = self._with_proxies(getattr(self.guest, name)) if self.guest_has(name) else None

        def call(trainer: Any, module: Any) -> None:
            # in Lightning's order: a batch ends before its validation, an epoch after
            if takes_batch and method is not None:
                method(trainer, module, *self._kept_batch_end)
            if self._has_validated and validation_end is not None:
                self._has_validated = False
                validation_end(trainer, module)
            if not takes_batch and method is not None:
                method(trainer, module)

        return call


def _do_nothing(*_: Any) -> None:
    """Stand for the method of a callback that has none."""


class PredictionWriterAdapter(LightningAdapter):
    """Adapter of a prediction writer, which reads the predictions from the trainer's loop."""

    def translated(self, hook: str) -> Callable[..., object] | None:
        """Return the function to call at `hook`; predictions are recorded before it."""
        handle = super().translated(hook)
        if hook == "on_predict_start":
            return partial(self._reset, handle or _do_nothing)
        if hook == "on_predict_batch_end":
            return partial(self._record, handle or _do_nothing)
        return handle

    def _reset(self, handle: Callable[..., object], trainer: Any, module: Any) -> None:
        # the indices are noted only in a prediction that asks for them
        trainer.note_batch_indices()
        get_trainer_proxy(trainer, self.guest).predict_loop.reset()
        handle(trainer, module)

    def _record(
        self, handle: Callable[..., object], trainer: Any, module: Any, outputs: Any, *rest: Any
    ) -> None:
        # there is a dataloader_idx only where there are several loaders
        _batch, _batch_idx, dataloader_idx = (*rest, 0)[:3]
        get_trainer_proxy(trainer, self.guest).predict_loop.record(outputs, dataloader_idx)
        handle(trainer, module, outputs, *rest)


class StochasticWeightAveragingAdapter(LightningAdapter):
    """Adapter of weight averaging that takes an epoch more to update a BatchNorm's statistics.

    In that epoch the batches' forwards are run, and no backward.
    """

    def translated(self, hook: str) -> Callable[..., object] | None:
        """Return the function to call at `hook`; before a backward, one that may skip it."""
        handle = super().translated(hook)
        if hook == "on_before_restore":
            return self._leave_out_scheduler
        if hook == "on_fit_start":
            return partial(self._support_skips, handle or _do_nothing)
        if hook == "on_before_backward":
            return partial(self._skip_backward, handle or _do_nothing)
        return handle

    def _leave_out_scheduler(self, trainer: Any, module: Any, checkpoint: Any) -> None:  # noqa: ARG002 - the hook's
        # the callback adds its scheduler in `on_train_epoch_start`, and restores its state itself
        # from its own; Lightning, too, leaves out the states of schedulers that are not there yet
        if "lr_schedulers" in checkpoint:
            del checkpoint["lr_schedulers"][len(trainer.lr_scheduler_configs) :]

    def _support_skips(self, handle: Callable[..., object], trainer: Any, module: Any) -> None:
        get_trainer_proxy(trainer, self.guest).skipping.is_supported = True
        handle(trainer, module)

    def _skip_backward(
        self, handle: Callable[..., object], trainer: Any, module: Any, loss: Any
    ) -> None:
        if get_trainer_proxy(trainer, self.guest).skipping.is_on:
            trainer.skip_batch()
        else:
            handle(trainer, module, loss)


class WeightAveragingAdapter(LightningAdapter):
    """Adapter of weight averaging that exchanges the weights with the average in a validation.

    Lightning saves nothing inside a validation, and the callback takes the weights of the module
    for those in training. Ours saves there at a signal and an error. So the adapter follows the
    exchanges.
    """

    # the place of the callback in the list, as in Lightning, and not that of a `WeightOwner`
    band: ClassVar[Band] = Callback.band

    def __init__(self, guest: Any) -> None:
        super().__init__(guest)
        self._is_exchanged = False

    def translated(self, hook: str) -> Callable[..., object] | None:
        """Return the function to call at `hook`, which follows the exchanges of the weights."""
        handle = super().translated(hook)
        if handle is None:
            return None
        if hook == "setup":
            return partial(self._set_up, handle)
        if hook in ("on_validation_epoch_start", "on_validation_epoch_end"):
            return partial(self._exchange, handle)
        if hook == "on_save_checkpoint":
            return partial(self._save, handle)
        return handle

    def _set_up(self, handle: Callable[..., object], trainer: Any, module: Any, stage: str) -> None:
        if stage == "fit":
            # two averages would put their weights under the same keys of a checkpoint
            require_no_owner(trainer, self)
            self._is_exchanged = False
        handle(trainer, module, stage)

    def _exchange(self, handle: Callable[..., object], trainer: Any, module: Any) -> None:
        handle(trainer, module)
        self._is_exchanged = not self._is_exchanged

    def _save(
        self, handle: Callable[..., object], trainer: Any, module: Any, checkpoint: dict[str, Any]
    ) -> None:
        handle(trainer, module, checkpoint)
        current = "current_model_state"
        if self._is_exchanged and current in checkpoint:
            checkpoint["state_dict"], checkpoint[current] = (
                checkpoint[current],
                checkpoint["state_dict"],
            )


_BATCH_SIZE_OPTIONS = (
    "mode", "steps_per_trial", "init_val", "max_trials", "batch_arg_name", "margin", "max_val",
)  # fmt: skip


class TunerAdapter(LightningAdapter):
    """Adapter of Lightning's LearningRateFinder and BatchSizeFinder.

    The callback decides when to search. The search runs loops, so it is replaced by trial runs of
    ours with the callback's options; Lightning's own classes raise the rate and judge the losses.
    """

    needs_steps: ClassVar[bool] = True

    def __init__(self, guest: Any) -> None:
        super().__init__(guest)
        # on the object, since hooks of Lightning's classes and of users' subclasses call it on self
        if hasattr(guest, "lr_find"):
            vars(guest)["lr_find"] = self._find_learning_rate
        else:
            vars(guest)["scale_batch_size"] = self._find_batch_size

    def translated(self, hook: str) -> Callable[..., object] | None:
        """Return the function to call at `hook`; Lightning's own `setup` is not called."""
        # it only checks whether Lightning's own Trainer is set up for the search
        if hook == "setup" and "lightning" in type(self.guest).setup.__module__:
            return None
        return super().translated(hook)

    def _find_learning_rate(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002 - Lightning's
        target, options = unwrap_proxy(trainer), vars(self.guest)
        if target.fast_dev_run:
            return
        setting = None
        if options["_update_attr"]:
            finder = LearningRateFinder(attr_name=options["_attr_name"])
            setting = finder.tuned_attribute(target.module, target.datamodule)
        package = lightning_package_of(self.guest)
        classes = vars(importlib.import_module(f"{package}.tuner.lr_finder"))
        steps, low, high = options["_num_training_steps"], options["_min_lr"], options["_max_lr"]
        results = classes["_LRFinder"](options["_mode"], low, high, steps)
        losses = classes["_LRCallback"](steps, options["_early_stop_threshold"])
        scheduler = classes["_LinearLR" if options["_mode"] == "linear" else "_ExponentialLR"]
        ramp = _LearningRateRamp(low, lambda optimizer: scheduler(optimizer, high, steps))
        target.trial_run(ramp, LightningAdapter.hosting(losses), steps=_most_steps(target, steps))
        results.results.update({"lr": losses.lrs, "loss": losses.losses})
        self.guest.optimal_lr = results
        learning_rate = results.suggestion() if setting is not None else None
        if setting is not None and learning_rate is not None:
            setting.write(learning_rate)
            target.renew_learning_rates()

    def _find_batch_size(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002 - Lightning's
        attributes = vars(self.guest)
        options = {
            name: attributes[f"_{name}"] for name in _BATCH_SIZE_OPTIONS if f"_{name}" in attributes
        }
        finder = BatchSizeFinder(**options)
        target = unwrap_proxy(trainer)
        finder.scale_batch_size(target, target.module)
        self.guest.optimal_batch_size = finder.optimal_batch_size


class _LearningRateRamp(Callback):
    """Raise the learning rate at every step by a scheduler of Lightning's.

    Args:
        low: the rate of the first step.
        make_scheduler: returns the scheduler of an optimizer.
    """

    def __init__(self, low: float, make_scheduler: Callable[[Any], Any]) -> None:
        self._low, self._make_scheduler = low, make_scheduler

    def on_train_start(self, trainer: Any, module: Any) -> None:  # noqa: ARG002 - a hook
        """Set the lowest rate and make the scheduler."""
        (optimizer,) = trainer.optimizers
        for group in optimizer.param_groups:
            # both: a scheduler starts from an initial_lr that an earlier one has left there
            group["lr"] = group["initial_lr"] = self._low
        # where `_LRCallback` looks for the rate
        scheduler = self._make_scheduler(optimizer)
        trainer.lr_scheduler_configs.append(LRSchedulerConfig(scheduler, interval="step"))


def _most_steps(trainer: Any, steps: int) -> int:
    """Return how many steps a search makes: in Lightning, at most those left of the fit.

    Args:
        trainer: the Trainer.
        steps: steps that the callback asks for.
    """
    batches = trainer.num_training_batches
    if trainer.max_epochs < 0 or math.isinf(batches):
        return steps
    windows = math.ceil(batches / trainer.accumulate_grad_batches)
    steps_left: int = windows * (trainer.max_epochs - trainer.current_epoch)
    return max(1, min(steps, steps_left))


# --- the choice of an adapter ---

_COUNTERPARTS: dict[str, type[Callback]] = {
    "callbacks.checkpoint.Checkpoint": Checkpoint,
    "callbacks.progress.progress_bar.ProgressBar": ForeignProgressBar,
    "callbacks.early_stopping.EarlyStopping": EarlyStopping,
    "callbacks.model_summary.ModelSummary": ModelSummary,
    "callbacks.timer.Timer": Timer,
    "callbacks.weight_averaging.WeightAveraging": WeightOwner,
}
"""The class of ours that a callback of Lightning counts as; a default of that class steps back."""

_SPECIAL_ADAPTERS: dict[str, type[LightningAdapter]] = {
    "callbacks.prediction_writer.BasePredictionWriter": PredictionWriterAdapter,
    "callbacks.batch_size_finder.BatchSizeFinder": TunerAdapter,
    "callbacks.lr_finder.LearningRateFinder": TunerAdapter,
    "callbacks.stochastic_weight_avg.StochasticWeightAveraging": StochasticWeightAveragingAdapter,
    "callbacks.weight_averaging.WeightAveraging": WeightAveragingAdapter,
}
"""Adapters of the callbacks that use more of Lightning's Trainer than its public names."""


def adapt(callback: Any) -> Callback:
    """Return the adapter of a callback of Lightning.

    Args:
        callback: the callback.
    """
    return choose_adapter(
        callback, LightningAdapter, _SPECIAL_ADAPTERS, _COUNTERPARTS, LIGHTNING_PACKAGES
    )
