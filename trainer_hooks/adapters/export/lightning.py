"""to_lightning: one of our callbacks in Lightning's Trainer."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any, ClassVar

from trainer_hooks.adapters.export.hook_driver import HookDriver, largest_limit
from trainer_hooks.adapters.export.host_trainer import HostTrainer
from trainer_hooks.adapters.export.plugins import without_users_own
from trainer_hooks.adapters.hook_names import LIGHTNING_NAMES
from trainer_hooks.adapters.lightning.loggers import LightningLoggerAdapter
from trainer_hooks.callbacks import Checkpoint, ModelSummary, ProgressBar
from trainer_hooks.connector.registry import validate_callback
from trainer_hooks.errors import CallbackError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from trainer_hooks.callback import Callback

_SAME_HOOKS = tuple(hook for hook, name in LIGHTNING_NAMES.items() if name == "same")

LIGHTNING_EVENTS: dict[str, str] = {
    **{hook: hook for hook in _SAME_HOOKS},
    "on_sanity_check_start": "on_validation_start",  # its own comes before the loaders are made
    "on_configure_model": "setup",
    "on_after_configure_model": "setup",
    "on_before_load": "setup",
    "on_before_restore": "on_load_checkpoint",
    "on_load_checkpoint": "on_fit_start",
    "on_after_load": "on_fit_start",
    "on_epoch_start": "on_train_epoch_start",
    "on_before_dataloader": "on_train_epoch_start",  # also after a batch and after a validation
    "on_after_dataloader": "on_train_batch_start",
    "on_before_train_batch": "on_train_batch_start",
    "on_before_forward": "the model's forward",
    "on_after_forward": "the model's forward",
    "on_after_train_batch": "configure_gradient_clipping",
    "on_after_optimizer_step": "the optimizer's step",
    "on_batch_checkpoint": "on_train_batch_end",  # also after a validation inside an epoch
    "on_train_batches_end": "on_train_batch_end",
    "on_validation_run_start": "on_validation_start",
    "on_validation_run_end": "on_validation_end",
    "on_epoch_end": "on_train_epoch_end",
    "on_epoch_checkpoint": "on_train_epoch_end",
    "on_evaluation_run_start": "setup",
    "on_evaluation_run_end": "teardown",
}
"""Lightning's hook at which each hook of ours is called."""

_RESTARTS = (
    "Lightning's Trainer cannot go back to the beginning of a training from inside it; its Tuner "
    "does the same before the fit: `Tuner(trainer)`."
)


_SAME_NAMES = (
    "optimizers", "lr_scheduler_configs", "check_val_every_n_epoch", "val_check_interval",
    "num_training_batches", "num_sanity_val_batches", "num_test_batches", "num_predict_batches",
    "train_dataloader", "datamodule", "precision", "precision_plugin", "default_root_dir",
    "world_size", "global_rank", "local_rank", "received_sigterm", "progress_bar_metrics",
    "logged_metrics",
)  # fmt: skip
"""Attributes that Lightning's Trainer has under the same name, with the same values."""


class LightningHostTrainer(HostTrainer):
    """Lightning's Trainer; a name that is not here is Lightning's own."""

    framework = "Lightning"

    host_names: ClassVar[Mapping[str, str]] = {
        **{name: name for name in _SAME_NAMES},
        "named_ckpt_path": "ckpt_path",  # Lightning does not keep the word that chose it
        "device": "strategy.root_device",
        "is_leaving": "received_sigterm",
        "host_callbacks": "callbacks",
    }

    lacks: ClassVar[Mapping[str, str]] = {
        "trial_run": _RESTARTS,
        "reload_dataloaders": _RESTARTS,
        "renew_learning_rates": _RESTARTS,
        "request_validation": "Lightning validates by `val_check_interval` alone.",
        "validate_again": "Lightning validates by `val_check_interval` alone.",
        "end_epoch": "Lightning's epochs end with their loader or at `limit_train_batches`.",
        "save_in_background": "Lightning saves in the foreground: pass async_save=False.",
        "note_batch_indices": "Lightning gives the indices to its own BasePredictionWriter alone.",
        "batch_indices": "Lightning gives the indices to its own BasePredictionWriter alone.",
    }

    refuses: ClassVar[Mapping[str, str]] = {
        "MLPerfCallback": "It counts the validation's samples before Lightning makes its loader.",
    }

    def offers(self, name: str) -> bool:
        """Return whether an attribute is there, here or in Lightning."""
        return super().offers(name) or hasattr(_lightning().Trainer, name)

    # --- that of Lightning in place of the base class's defaults ---

    fast_dev_run = property(lambda self: int(self.proxy_target.fast_dev_run))
    """Whether it is a dry run."""
    max_epochs = property(lambda self: largest_limit(self.proxy_target.max_epochs))
    """The number of epochs to train; -1 for no such limit."""
    max_steps = property(lambda self: largest_limit(self.proxy_target.max_steps))
    """The number of steps to train; -1 for no such limit."""
    min_epochs = property(lambda self: self.proxy_target.min_epochs or 0)
    """The least number of epochs."""
    min_steps = property(lambda self: self.proxy_target.min_steps or -1)
    """The least number of steps."""
    log_every_n_steps = property(lambda self: max(1, self.proxy_target.log_every_n_steps))
    """The number of steps between two logged ones."""
    ckpt_path = property(lambda self: self.proxy_target.ckpt_path, lambda _, __: None)
    """The checkpoint that the run starts from."""
    sanity_checking = property(lambda self: self.proxy_target.sanity_checking, lambda _, __: None)
    """Whether a sanity check runs."""
    num_val_batches = property(lambda self: list(self.proxy_target.num_val_batches))
    """The number of batches of each validation loader."""

    @property
    def callback_metrics(self) -> Any:
        """The latest value of every logged metric; values can be added."""
        return self.proxy_target.callback_metrics

    @callback_metrics.setter
    def callback_metrics(self, metrics: Any) -> None:
        """Leave Lightning's in place."""

    @property
    def val_dataloaders(self) -> list[Any]:
        """The validation loaders."""
        loaders = self.proxy_target.val_dataloaders
        return list(loaders) if isinstance(loaders, list | tuple) else [loaders]

    @property
    def accumulate_grad_batches(self) -> int:
        """Batches of an accumulation window."""
        return int(self.proxy_target.accumulate_grad_batches)

    @accumulate_grad_batches.setter
    def accumulate_grad_batches(self, count: int) -> None:
        self.proxy_target.accumulate_grad_batches = count

    @property
    def should_stop(self) -> bool:
        """Whether the end of the training was requested."""
        return self.proxy_target is not None and bool(self.proxy_target.should_stop)

    @should_stop.setter
    def should_stop(self, value: bool) -> None:
        if self.proxy_target is not None:
            self.proxy_target.should_stop = value

    @property
    def loggers(self) -> list[Any]:
        """Lightning's loggers."""
        return [LightningLoggerAdapter(logger) for logger in self.proxy_target.loggers]

    def request_checkpoint(self) -> None:
        """Request a checkpoint after the current batch, with its validation."""
        self.progress.is_checkpoint_requested = True

    def save_checkpoint(self, filepath: Any, weights_only: bool = False) -> None:
        """Save a checkpoint of Lightning."""
        self.proxy_target.save_checkpoint(filepath, weights_only)
        self.on_checkpoint_saved(str(filepath))

    def _replay_batch(self, batch: Any, batch_idx: int) -> None:
        batch = self.proxy_target.strategy.batch_to_device(batch)
        with self.proxy_target.precision_plugin.train_step_context():
            # a step may log, which Lightning refuses outside of its own loop
            log, self.module.log = self.module.log, lambda *_, **__: None
            try:
                self.module.training_step(batch, batch_idx)
            finally:
                self.module.log = log

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "proxy_target":
            raise AttributeError(name)
        try:
            return getattr(self.proxy_target, name)
        except AttributeError:
            return super().__getattr__(name)


class _ClippingWatch:
    """The `configure_gradient_clipping` of a module, which tells when it is done.

    Args:
        module: the module; the watch takes the place of its method until nobody listens.

    Attributes:
        listeners: the functions to call.
    """

    def __init__(self, module: Any) -> None:
        self._module = module
        self._own = vars(module).get("configure_gradient_clipping")
        self._clip = module.configure_gradient_clipping
        self.listeners: list[Callable[[], None]] = []

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Clip, and call the listeners."""
        self._clip(*args, **kwargs)
        for listener in self.listeners:
            listener()

    def remove(self, listener: Callable[[], None]) -> None:
        """Take a listener out; after the last one the module has its own method again."""
        if listener in self.listeners:
            self.listeners.remove(listener)
        if not self.listeners:
            vars(self._module).pop("configure_gradient_clipping", None)
            if self._own is not None:
                self._module.configure_gradient_clipping = self._own

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        # a callback that copies the module must not copy the callbacks that listen
        return self


class _LentClass(type):
    """The class of a callback that is lent to Lightning: each has one of its own.

    Lightning lets a callback of the module's `configure_callbacks` replace those of its class and
    of that class's bases, so these compare as the classes of the callbacks that are lent.
    """

    trainer_hooks_driver: LightningDriver

    def __subclasscheck__(cls, subclass: type) -> bool:
        if super().__subclasscheck__(subclass):
            return True
        kinds = [type(lent.trainer_hooks_driver.callback) for lent in (subclass, cls)
                 if isinstance(lent, _LentClass)]  # fmt: skip
        return len(kinds) == 2 and issubclass(*kinds)


class LightningDriver(HookDriver):
    """A method for each hook of Lightning, which calls hooks of ours."""

    view = LightningHostTrainer
    events = LIGHTNING_EVENTS
    trainer: LightningHostTrainer

    _is_checking = False

    # --- the run ---

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Begin a run."""
        # those of the module's configure_callbacks are there by now
        rest = self.without_twin(trainer.callbacks)
        if rest is not None:
            trainer.callbacks = rest
            return
        self.trainer.proxy_target = trainer
        fn = str(getattr(stage, "value", stage))
        if fn == "fit" and "on_init_end" in self.calls:
            self.calls["on_init_end"](self.trainer)
        self.begin_run(fn, pl_module)
        if fn in ("validate", "test"):
            self.fire("on_evaluation_run_start", self.trainer.state.fn)

    def on_load_checkpoint(self, _: Any, __: Any, checkpoint: dict[str, Any]) -> None:
        """Restore the counters and the callback; Lightning has loaded the weights by now."""
        state = checkpoint.get("callbacks", {}).get(f"trainer_hooks:{self.callback.state_key}")
        self.restore(state, checkpoint)
        progress = self.trainer.progress
        progress.epochs_completed = int(checkpoint["epoch"])
        progress.steps_completed = int(checkpoint["global_step"])

    def on_fit_start(self, *_: Any) -> None:
        """Call the hooks of a fit's start; the optimizers are there by now."""
        self.watch_optimizers()
        self.watch_forward(self.trainer.module)
        if "on_after_train_batch" in self.calls:
            self._watch_lightnings_clipping()
        self.begin_fit()

    def _watch_lightnings_clipping(self) -> None:
        """Call `on_after_train_batch` once Lightning has clipped, which it does with or without."""
        module = self.trainer.module
        watch = vars(module).get("configure_gradient_clipping")
        if not isinstance(watch, _ClippingWatch):
            watch = module.configure_gradient_clipping = _ClippingWatch(module)
        watch.listeners.append(self._after_clipping)

    def _after_clipping(self) -> None:
        self.fire("on_after_train_batch")

    def on_train_start(self, trainer: Any, _: Any) -> None:
        """Take over Lightning's counters, which a resume has restored by now."""
        progress = self.trainer.progress
        batches = trainer.fit_loop.epoch_loop.batch_progress
        progress.epochs_completed = trainer.current_epoch
        progress.steps_completed = trainer.global_step
        progress.batches_completed = batches.total.completed
        progress.batches_stepped = trainer.fit_loop.epoch_loop._batches_that_stepped  # noqa: SLF001
        is_inside = trainer.fit_loop.restarting and trainer.fit_loop.restarted_mid_epoch
        progress.stage = progress.stage.BETWEEN
        if is_inside and not batches.is_last_batch:
            self.resume_epoch(batches.current.completed)
            self.fire("on_before_dataloader")
        self.begin_training()

    def on_train_end(self, *_: Any) -> None:
        """End the training."""
        self.end_training()

    def on_fit_end(self, *_: Any) -> None:
        """End the fit."""
        self.end_fit()

    def on_exception(self, _: Any, __: Any, exception: BaseException) -> None:
        """Call the hooks of an exception; `teardown` follows in Lightning, too."""
        self.fail(exception)

    def teardown(self, _: Any, module: Any, stage: str) -> None:
        """End the run."""
        fn = str(getattr(stage, "value", stage))
        watch = vars(module).get("configure_gradient_clipping")
        if isinstance(watch, _ClippingWatch):
            watch.remove(self._after_clipping)
        if fn in ("validate", "test"):
            self.fire("on_evaluation_run_end", self.trainer.state.fn)
        self.end_run()

    def on_save_checkpoint(self, _: Any, module: Any, checkpoint: dict[str, Any]) -> None:
        """Let the callback change the checkpoint."""
        call = self.calls.get("on_save_checkpoint")
        if call is not None:
            call(self.trainer, module, checkpoint)

    # --- an epoch ---

    def on_train_epoch_start(self, *_: Any) -> None:
        """Begin an epoch."""
        self.begin_epoch()
        self.fire("on_before_dataloader")

    def on_train_batch_start(self, trainer: Any, _: Any, batch: Any, batch_idx: int) -> None:
        """Begin a batch."""
        self.fire("on_after_dataloader", batch)
        self.begin_batch(batch, batch_idx, is_last=trainer.is_last_batch)

    def on_before_backward(self, _: Any, __: Any, loss: Any) -> None:
        """Call the hook, and set gradients aside for a skipped batch."""
        self.before_backward(loss)

    def on_after_backward(self, *_: Any) -> None:
        """Call the hook, and drop the gradients of a skipped batch."""
        self.after_backward()

    def on_before_optimizer_step(self, _: Any, module: Any, optimizer: Any) -> None:
        """Call the hook; with manual optimization no clipping follows."""
        self.fire("on_before_optimizer_step", optimizer)
        if not module.automatic_optimization:
            self.fire("on_after_train_batch")

    def on_train_batch_end(
        self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """End a batch, and with the last one the epoch's batches."""
        every, is_last = trainer.accumulate_grad_batches, trainer.is_last_batch
        closes = is_last or (batch_idx + 1) % every == 0 or not module.automatic_optimization
        self.end_batch(
            outputs if isinstance(outputs, dict) else {"loss": outputs} if outputs is not None
            else {},
            batch, batch_idx, closes_window=closes, steps=trainer.global_step,
        )  # fmt: skip
        self.end_batch_slot()
        if is_last:
            self.end_batches()
        else:
            self.fire("on_before_dataloader")

    def on_train_epoch_end(self, *_: Any) -> None:
        """End an epoch."""
        self.end_epoch()

    # --- evaluations ---

    def on_sanity_check_start(self, *_: Any) -> None:
        """Wait for the loaders, which are there when the check's validation starts."""

    def on_sanity_check_end(self, *_: Any) -> None:
        """End a sanity check, if it had anything to validate."""
        if self._is_checking:
            self._is_checking = False
            self.fire("on_sanity_check_end")

    def on_validation_start(self, trainer: Any, *_: Any) -> None:
        """Begin a validation, and with the first one the sanity check."""
        if trainer.sanity_checking:
            self._is_checking = True
            self.fire("on_sanity_check_start")
        self.begin_validation_run()
        self.begin_validation()

    def on_validation_epoch_start(self, *_: Any) -> None:
        """Begin the epoch of a validation."""
        self.begin_validation_epoch()

    def on_validation_epoch_end(self, *_: Any) -> None:
        """End the epoch of a validation."""
        self.end_validation_epoch()

    def on_validation_end(self, *_: Any) -> None:
        """End a validation; inside an epoch the next batch follows."""
        self.end_validation()
        self.end_validation_run()
        if self.trainer.progress.stage == "batches" and not self.trainer.sanity_checking:
            self.end_batch_slot()
            self.fire("on_before_dataloader")


_OWN = frozenset(name for name in vars(LightningDriver) if name in _SAME_HOOKS)
"""Lightning's hooks that move the counters; each of the others is a hook of ours as it is."""

_COUNTERPARTS = (
    (ProgressBar, "ProgressBar"),
    (ModelSummary, "ModelSummary"),
    (Checkpoint, "Checkpoint"),
)
"""Classes of ours, and Lightning's class that a callback counts as: its default steps back."""


def to_lightning(callback: Callback) -> Any:
    """Return a callback of Lightning that calls the hooks of one of ours.

    Hooks are called with a view of Lightning's trainer under our names, which passes on all others,
    and with Lightning's module, through which the callback logs. `trainer.stop(reason)` and
    `StopTraining` end the fit. State is kept in Lightning's checkpoints, under `trainer_hooks:` and
    the callback's `state_key`. A progress bar, a model summary and a saver of ours take the place
    of Lightning's default.

    Args:
        callback: one of our callbacks.

    Raises:
        CallbackError: it is none of ours, needs a hook or an attribute that Lightning does not
            have, or Lightning is not installed.
    """
    driver = LightningDriver(callback, "to_lightning")
    package, kind = _lightning(), type(callback)
    methods: dict[str, Any] = {
        hook: _method(driver, hook) for hook in _SAME_HOOKS if hook in _OWN or hook in driver.calls
    }
    key = f"trainer_hooks:{callback.state_key}"
    methods["state_key"] = property(lambda _: key)
    methods["state_dict"] = lambda _: driver.exported_state()
    # done in `on_load_checkpoint`, which Lightning calls first, and with the whole checkpoint
    methods["load_state_dict"] = lambda *_: None
    methods["trainer_hooks_driver"] = driver
    methods["__init__"] = lambda _: None
    methods["__module__"] = kind.__module__
    counterparts = [name for base, name in _COUNTERPARTS if isinstance(callback, base)]
    base = getattr(package.callbacks, counterparts[0] if counterparts else "Callback")
    if isinstance(callback, ProgressBar):
        methods |= _progress_bar_methods(callback)
    return _LentClass(kind.__name__, (base,), methods)()


def _progress_bar_methods(callback: ProgressBar) -> dict[str, Any]:
    """Return the methods that Lightning calls on a progress bar."""
    return {
        "enable": lambda _: callback.enable(),
        "disable": lambda _: callback.disable(),
        "print": lambda _, *args, **kwargs: callback.print(*args, **kwargs),
    }


def _method(driver: LightningDriver, hook: str) -> Callable[..., None]:
    call = getattr(driver, hook) if hook in _OWN else None

    if call is None:

        def method(self: Any, trainer: Any, pl_module: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ARG001
            driver.fire(hook, *args, *kwargs.values())

    else:

        def method(self: Any, trainer: Any, pl_module: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ARG001
            # Lightning passes `stage` by name
            call(trainer, pl_module, *args, *kwargs.values())

    method.__name__ = hook
    return method


def _lightning() -> Any:
    """Return the package of Lightning that is imported, or else one that is installed.

    Raises:
        CallbackError: neither is installed.
    """
    for name in ("lightning.pytorch", "pytorch_lightning"):
        # its Callback is another class in each package, and the imported one's Trainer will run it
        if name in sys.modules:
            return sys.modules[name]
    for name in ("lightning.pytorch", "pytorch_lightning"):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError:
            continue
    raise CallbackError(
        "to_lightning: Lightning is not installed. Install it: pip install lightning."
    )


def lightning_factory(
    factory: Callable[[], Callback | Sequence[Callback]],
) -> Callable[[], list[Any]]:
    """Return a factory for Lightning's entry points, made from one for ours.

    A package that registers our callbacks by an entry point can register them in Lightning's
    Trainer, too. It needs this in its code::

        for_lightning = lightning_factory(make_callbacks)

    and an entry point to it in the group `lightning.pytorch.callbacks_factory`, and for the package
    `pytorch_lightning` in `pytorch_lightning.callbacks_factory`. Lightning is imported when it
    calls the factory, and not before.

    Args:
        factory: returns one of our callbacks, or a list of them.
    """

    def make() -> list[Any]:
        made = factory()
        callbacks = made if isinstance(made, list | tuple) else [made]
        return without_users_own(
            [
                to_lightning(validate_callback(callback, "what the factory made"))
                for callback in callbacks
            ]
        )

    return make
