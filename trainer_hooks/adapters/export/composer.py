"""to_composer: one of our callbacks in Composer's Trainer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from trainer_hooks.adapters.export.hook_driver import HookDriver, find_calling_trainer
from trainer_hooks.adapters.export.host_trainer import (
    LOADS_OUR_FILES,
    HostLogger,
    HostModule,
    PolledHostTrainer,
)
from trainer_hooks.adapters.export.requirements import import_host_framework
from trainer_hooks.adapters.hook_names import COMPOSER_NAMES
from trainer_hooks.hooks.spec import HOOKS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trainer_hooks.callback import Callback

_PRECISIONS = {"fp32": "32-true", "amp_fp16": "16-mixed", "amp_bf16": "bf16-mixed"}
_NO_RESTART = "Composer's Trainer cannot go back to the beginning of a training from inside it."

_OTHER_MOMENTS = {
    "setup": "before_load",
    "on_configure_model": "before_load",
    "on_after_configure_model": "before_load",
    "on_before_restore": "load_state_dict",
    "on_load_checkpoint": "load_state_dict",
    "on_after_load": "fit_start",
    "on_train_start": "fit_start",
    "on_epoch_start": "epoch_start",
    "on_before_train_batch": "batch_start",
    "on_before_optimizer_step": "after_backward",  # of the last microbatch
    "on_after_optimizer_step": "the optimizer's step",
    "on_validation_epoch_start": "eval_start",
    "on_validation_epoch_end": "eval_end",
    "on_train_epoch_end": "epoch_checkpoint",
    "on_epoch_end": "epoch_checkpoint",
    "on_train_end": "fit_end",
    "on_predict_epoch_start": "predict_start",
    "on_predict_epoch_end": "predict_end",
    "on_exception": "an error of `fit`",
    "teardown": "fit_end",
}
"""Hooks that are no events of Composer, and the event at which each is called all the same."""

_EVENTS = {
    hook: event
    for hook, event in {**COMPOSER_NAMES, **_OTHER_MOMENTS}.items()
    # Composer has no test: its evaluation is the validation
    if not hook.startswith("on_test_")
}

COMPOSER_EVENTS: dict[str, str] = {hook: _EVENTS[hook] for hook in HOOKS if hook in _EVENTS}
"""The event of Composer at which each hook of trainer_hooks is called; those of one event in this
order. `setup` and `teardown` are also called around a standalone evaluation and a prediction.
"""


class ComposerHostTrainer(PolledHostTrainer):
    """Composer's State under the names of our Trainer, and its Trainer behind it.

    Attributes:
        proxy_target: Composer's State.
        composer_trainer: Composer's Trainer.
        composer_logger: Composer's Logger.
        evaluated: the latest metrics of each evaluator, by the names that Composer logs them under.
    """

    framework = "Composer"

    refuses: ClassVar[Mapping[str, str]] = {"SaveBestModelCallback": LOADS_OUR_FILES}

    host_names: ClassVar[Mapping[str, str]] = {
        "train_dataloader": "train_dataloader",
        "host_callbacks": "callbacks",
    }

    lacks: ClassVar[Mapping[str, str]] = {
        "trial_run": _NO_RESTART,
        "reload_dataloaders": _NO_RESTART,
        "renew_learning_rates": _NO_RESTART,
        "request_validation": "Composer evaluates by `eval_interval` alone.",
        "validate_again": "Composer evaluates by `eval_interval` alone.",
        "end_epoch": "Composer's epochs end with their loader.",
        "save_in_background": "Composer saves in the foreground: pass async_save=False.",
        "accumulate_grad_batches =": "Composer splits a batch by device_train_microbatch_size.",
        "note_batch_indices": "Composer tells no indices of samples.",
        "on_before_zero_grad": "Composer has no event before gradients are cleared.",
    }

    def __init__(self, callback: Callback) -> None:
        super().__init__(callback)
        self.composer_trainer: Any = None
        self.composer_logger: Any = None
        self.evaluated: dict[str, Any] = {}

    @property
    def optimizers(self) -> list[Any]:
        """The optimizers."""
        return [] if self.proxy_target is None else list(self.proxy_target.optimizers or ())

    @property
    def host_scheduler(self) -> Any:
        """The scheduler; of several the first."""
        return next(iter(self.proxy_target.schedulers), None)

    @host_scheduler.setter
    def host_scheduler(self, scheduler: Any) -> None:
        self.proxy_target.schedulers = [] if scheduler is None else [scheduler]

    max_epochs = property(lambda self: self._max_duration_in("ep"))
    """The number of epochs to train; -1 if the duration is in another unit."""
    max_steps = property(lambda self: self._max_duration_in("ba"))
    """The number of steps to train; -1 if the duration is in another unit."""

    def _max_duration_in(self, unit: str) -> int:
        longest = self.proxy_target.max_duration
        return int(longest.value) if longest is not None and longest.unit.value == unit else -1

    @property
    def num_training_batches(self) -> int | float:
        """The number of batches of an epoch; infinity if unknown."""
        length = self.proxy_target.dataloader_len
        # during an evaluation it is that of the evaluator
        if self.state.stage == "validate":
            loader = self.proxy_target.train_dataloader
            length = len(loader) if hasattr(loader, "__len__") else None
        return math.inf if length is None else int(length)

    @property
    def val_dataloaders(self) -> list[Any]:
        """The loaders of the evaluators."""
        return [evaluator.dataloader.dataloader for evaluator in self.proxy_target.evaluators]

    def metric_sources(self) -> list[dict[str, Any]]:
        """Return the latest losses and metrics, under the names of the model and of the logger."""
        state = self.proxy_target
        trained = state.train_metric_values
        return [
            state.total_loss_dict,
            trained,
            {f"metrics/train/{name}": value for name, value in trained.items()},
            state.eval_metric_values,
            self.evaluated,
        ]

    @property
    def should_stop(self) -> bool:
        """Whether the callback requested the end of the training."""
        return bool(vars(self).get("_should_stop", False))

    @should_stop.setter
    def should_stop(self, value: bool) -> None:
        self._should_stop = value
        if value:
            self.proxy_target.stop_training()

    @property
    def precision(self) -> str:  # type: ignore[override]
        """The precision of the forward, by our name."""
        name: str = self.proxy_target.precision.value
        return _PRECISIONS.get(name, name)

    @property
    def loggers(self) -> list[Any]:
        """Composer's logger."""
        logger = self.composer_logger
        return [
            HostLogger(
                lambda metrics, step: logger.log_metrics(dict(metrics), step),
                name=self.proxy_target.run_name,
            )
        ]

    def request_checkpoint(self) -> None:
        """Request a checkpoint after the current batch, with its validation."""
        self.progress.is_checkpoint_requested = True

    def save_checkpoint(self, filepath: Any, weights_only: bool = False) -> None:
        """Save a checkpoint of Composer."""
        self.composer_trainer.save_checkpoint(str(filepath), weights_only=weights_only)
        self.on_checkpoint_saved(str(filepath))

    def _replay_batch(self, batch: Any, batch_idx: int) -> None:  # noqa: ARG002
        batch = self.proxy_target.device.batch_to_device(batch)
        self.module.proxy_target(batch)


class ComposerDriver(HookDriver):
    """A method for each event of Composer that moves the counters; the others are hooks as is."""

    view = ComposerHostTrainer
    events = COMPOSER_EVENTS
    trainer: ComposerHostTrainer

    def __init__(self, callback: Callback, function: str) -> None:
        super().__init__(callback, function)
        self._same: dict[str, list[str]] = {}
        moved = {name for name in vars(ComposerDriver) if not name.startswith("_")}
        for hook, event in COMPOSER_EVENTS.items():
            if hook in self.calls and event not in moved:
                self._same.setdefault(event, []).append(hook)
        self._backwards = self._microbatches = 0
        self._module: HostModule | None = None
        self._is_restored = False

    @property
    def used_events(self) -> set[str]:
        """The events of Composer that it takes part in."""
        moved = {name for name in vars(ComposerDriver) if name in _METHODS}
        return moved | set(self._same) - {"post_close"}

    def on_event(self, event: str, state: Any, logger: Any) -> None:
        """Call the hooks of an event."""
        trainer = self.trainer
        trainer.proxy_target, trainer.composer_logger = state, logger
        method = _METHODS.get(event)
        if method is not None:
            method(self, state)
        for hook in self._same.get(event, ()):
            self.fire(hook, *(_ARGUMENTS[hook](state) if hook in _ARGUMENTS else ()))

    # --- the run ---

    def init(self, state: Any) -> None:
        """Call `on_init_end`, and learn of errors of `fit`."""
        rest = self.without_twin(state.callbacks)
        if rest is not None:
            state.callbacks = rest
            return
        self.trainer.composer_trainer = theirs = find_calling_trainer("composer")
        if "on_init_end" in self.calls:
            self.calls["on_init_end"](self.trainer)
        fit = theirs.fit

        def fit_and_tell(*args: Any, **kwargs: Any) -> Any:
            try:
                return fit(*args, **kwargs)
            except BaseException as error:
                self.fail(error)
                raise

        theirs.fit = fit_and_tell

    def before_load(self, state: Any) -> None:
        """Begin the run, before a checkpoint is loaded."""
        self._begin(state, "fit")

    def _begin(self, state: Any, fn: str) -> None:
        model = state.model
        model = model.module if isinstance(model, _WRAPPERS) else model
        if self._module is None or self._module.proxy_target is not model:
            self._module = HostModule(model, self._record)
        self.begin_run(fn, self._module)

    def load(self, state: dict[str, Any]) -> None:
        """Restore the callback; Composer has loaded the weights, and the optimizers come next."""
        self._is_restored = True
        weights = dict(self.trainer.module.state_dict())
        self.restore(state, {"state_dict": weights})
        self.load_into_optimizers()

    def fit_start(self, state: Any) -> None:
        """Call the hooks of a fit's start."""
        if not self.is_open:
            self._begin(state, "fit")
        now, progress = state.timestamp, self.trainer.progress
        if int(now.batch) and not self._is_restored and progress.is_untrained:
            self.restore(None, {"state_dict": dict(self.trainer.module.state_dict())})
        self._is_restored = False
        progress.epochs_completed = int(now.epoch)
        progress.steps_completed = progress.batches_stepped = int(now.batch)
        progress.batches_completed = int(now.batch)
        progress.samples_completed = int(now.sample)
        progress.tokens_completed = int(now.token)
        progress.stage = progress.stage.BETWEEN
        if int(now.batch_in_epoch):
            self.resume_epoch(int(now.batch_in_epoch))
        self.watch_optimizers()
        self.begin_fit()
        self.begin_training()

    def fit_end(self, _: Any) -> None:
        """Call the hooks of a fit's end."""
        self.end_training()
        self.end_fit()
        self.end_run()

    def eval_standalone_start(self, state: Any) -> None:
        """Begin an evaluation of its own."""
        self._begin(state, "validate")
        self.fire("on_evaluation_run_start", self.trainer.state.fn)

    def eval_standalone_end(self, _: Any) -> None:
        """End an evaluation of its own."""
        self.fire("on_evaluation_run_end", self.trainer.state.fn)
        self.end_run()

    def predict_start(self, state: Any) -> None:
        """Begin a prediction."""
        self._begin(state, "predict")
        self.fire("on_predict_start")
        self.fire("on_predict_epoch_start")

    def predict_end(self, _: Any) -> None:
        """End a prediction."""
        self.fire("on_predict_epoch_end")
        self.fire("on_predict_end")
        self.end_run()

    def post_close(self) -> None:
        """Call `on_post_close`."""
        self.fire("on_post_close")

    # --- an epoch ---

    def epoch_start(self, _: Any) -> None:
        """Begin an epoch."""
        self.begin_epoch()

    def batch_start(self, state: Any) -> None:
        """Begin a batch."""
        index = int(state.timestamp.batch_in_epoch)
        self._backwards = 0
        self._microbatches = self._count_microbatches(state)
        length = self.trainer.num_training_batches
        self.begin_batch(state.batch, index, is_last=index + 1 >= length)

    def _count_microbatches(self, state: Any) -> int:
        if "on_before_optimizer_step" not in self.calls:
            return 0
        size = state.device_train_microbatch_size
        spec = self.trainer.composer_trainer._train_data_spec  # noqa: SLF001 - it counts samples
        samples = spec.get_num_samples_in_batch(state.batch)
        return math.ceil(samples / size) if isinstance(size, int | float) else 1

    def before_backward(self, state: Any) -> None:
        """Call the hook, and set gradients aside for a skipped batch."""
        super().before_backward(state.loss)

    def after_backward(self, state: Any) -> None:  # type: ignore[override]
        """Call the hook; after the last microbatch the gradients of the step are complete."""
        super().after_backward()
        self._backwards += 1
        # scaled gradients are unscaled before `after_train_batch`
        if self._backwards == self._microbatches and not _is_scaled(state):
            self.before_optimizer_step()

    def after_train_batch(self, state: Any) -> None:
        """Call the hook before the step."""
        if _is_scaled(state):
            self.before_optimizer_step()
        self.fire("on_after_train_batch")

    def batch_end(self, state: Any) -> None:
        """End a batch; Composer has counted it."""
        # not state.loss, which is that of the last microbatch
        loss = torch.tensor(float(state.total_loss_dict["loss/train/total"]))
        now = state.timestamp
        self.end_batch(
            {"loss": loss}, state.batch, int(now.batch_in_epoch) - 1, closes_window=True,
            steps=int(now.batch),
        )  # fmt: skip

    def batch_checkpoint(self, _: Any) -> None:
        """Call the slot after a batch and its evaluation."""
        self.end_batch_slot()

    def epoch_end(self, _: Any) -> None:
        """End the batches of an epoch."""
        self.end_batches()

    def epoch_checkpoint(self, _: Any) -> None:
        """End an epoch, after its evaluation."""
        self.end_epoch()

    # --- an evaluation ---

    def eval_before_all(self, _: Any) -> None:
        """Begin the evaluations inside a fit."""
        self.begin_validation_run()

    def eval_start(self, _: Any) -> None:
        """Begin the evaluation of one evaluator."""
        if self.is_open:
            self.begin_validation()
            self.begin_validation_epoch()

    def eval_end(self, state: Any) -> None:
        """End the evaluation of one evaluator."""
        label = state.dataloader_label
        values = state.eval_metric_values  # of each name those of the evaluator that ran last
        for name in state.eval_metrics.get(label, {}):
            self.trainer.evaluated[f"metrics/{label}/{name}"] = values[name]
        if self.is_open:
            self.end_validation_epoch()
            self.end_validation()

    def eval_after_all(self, _: Any) -> None:
        """End the evaluations inside a fit."""
        self.end_validation_run()

    def _record(self, values: Mapping[str, Any]) -> None:
        numbers = {name: float(value) for name, value in values.items()}
        self.trainer.record(numbers)
        self.trainer.composer_logger.log_metrics(numbers)


_WRAPPERS = (torch.nn.parallel.DistributedDataParallel,)

_METHODS: dict[str, Callable[[ComposerDriver, Any], None]] = {
    name: getattr(ComposerDriver, name)
    for name in vars(ComposerDriver)
    if name in {*_EVENTS.values(), "init"} and name != "post_close"
}
"""Composer's events that move the counters."""


def to_composer(callback: Callback) -> Any:
    """Return a callback of Composer that calls the hooks of a callback of trainer_hooks.

    A batch is Composer's, which makes one step. `self.log` logs to Composer's logger;
    `trainer.stop(reason)` and `StopTraining` end the training as `state.stop_training()` does.
    State is kept in Composer's checkpoints, under `trainer_hooks:` and the callback's `state_key`.

    Args:
        callback: a callback of trainer_hooks.

    Raises:
        CallbackError: it is none of ours, needs a hook or an attribute that Composer does not have,
            or Composer is not installed.
    """
    driver = ComposerDriver(callback, "to_composer")
    base = import_host_framework("composer.core", "Composer", "to_composer", "mosaicml").Callback
    methods: dict[str, Any] = {event: _event(driver, event) for event in driver.used_events}
    # the only method there that is handed neither state nor logger
    methods["post_close"] = lambda _: driver.post_close()
    methods["state_dict"] = lambda _: driver.exported_state(
        {} if driver.trainer.module is None else dict(driver.trainer.module.state_dict())
    )
    methods["load_state_dict"] = lambda _, state: driver.load(state)
    methods["trainer_hooks_driver"] = driver
    kind = type(callback)
    methods["__module__"] = kind.__module__
    # Composer saves the states of callbacks under this name
    methods["__qualname__"] = f"trainer_hooks:{callback.state_key}"
    return type(kind.__name__, (base,), methods)()


def _event(driver: ComposerDriver, event: str) -> Callable[..., None]:
    def call(self: Any, state: Any, logger: Any) -> None:  # noqa: ARG001 - a method of theirs
        driver.on_event(event, state, logger)

    return call


def _is_scaled(state: Any) -> bool:
    return state.scaler is not None and state.scaler.is_enabled()


def _loss(state: Any) -> tuple[Any, ...]:
    return (state.loss,)


def _outputs(state: Any) -> tuple[Any, ...]:
    return (state.outputs,)


# at the end of a batch Composer's timestamps have counted it, so that its index is one less
_ARGUMENTS: dict[str, Callable[[Any], tuple[Any, ...]]] = {
    "on_after_dataloader": lambda state: (state.batch,),
    "on_after_forward": _outputs,
    "on_after_loss": _loss,
    "on_validation_batch_start": lambda state: (state.batch, int(state.eval_timestamp.batch)),
    "on_validation_after_forward": _outputs,
    "on_validation_batch_end": lambda state: (
        state.outputs, state.batch, int(state.eval_timestamp.batch) - 1
    ),
    "on_predict_batch_start": lambda state: (state.batch, int(state.predict_timestamp.batch)),
    "on_predict_after_forward": _outputs,
    "on_predict_batch_end": lambda state: (
        state.outputs, state.batch, int(state.predict_timestamp.batch) - 1
    ),
}  # fmt: skip
"""The arguments of a hook after the trainer and the module; none for a hook that is not here."""
