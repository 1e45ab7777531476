"""to_composer: a callback of trainer_hooks in Composer's Trainer."""

from __future__ import annotations

from operator import attrgetter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed

from trainer_hooks._names import ours
from trainer_hooks.adapters.export.host_trainer import (
    HostProgress,
    LogForwarder,
    import_host_framework,
    missing_host_attribute,
    numbers_as_tensors,
    overridden_hooks,
)
from trainer_hooks.adapters.hook_names import COMPOSER_NAMES
from trainer_hooks.errors import StopTraining
from trainer_hooks.hooks.spec import HOOKS

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_hooks.callback import Callback

_PRECISIONS = {"fp32": "32-true", "amp_fp16": "16-mixed", "amp_bf16": "bf16-mixed"}


class ComposerHostTrainer:
    """Composer's Trainer under the names of trainer_hooks' Trainer, as a callback receives it.

    Args:
        state: Composer's State.
        callback: the callback that receives it.

    Attributes:
        proxy_target: Composer's State.
        stage: `"fit"`, `"validate"` or `"predict"`; empty before a run.
        is_evaluating: whether an evaluation is running.
        should_stop: whether the callback requested the end of the training.
        stop_reason: the reason of that request.
    """

    # options that Composer's Trainer lacks, with the values by which it behaves
    fast_dev_run = 0
    sanity_checking = False
    accumulate_grad_batches = 1
    check_val_every_n_epoch = 1
    val_check_interval = 1.0
    min_epochs = 0
    min_steps = 0

    def __init__(self, state: Any, callback: Callback) -> None:
        self.proxy_target = state
        self.stage = ""
        self.is_evaluating = False
        self.should_stop = False
        self.stop_reason = ""
        self._callback = callback
        self._logged: dict[str, float] = {}

    def stop(self, reason: str = "") -> None:
        """Stop the training after the present batch."""
        self.should_stop, self.stop_reason = True, reason
        self.proxy_target.stop_training()

    def add_logged(self, name: str, value: float) -> None:
        """Add a value that the callback logged to `callback_metrics`."""
        self._logged[name] = value

    module = property(attrgetter("proxy_target.model"))
    """The model."""

    @property
    def state(self) -> SimpleNamespace:
        """The stage of the run, as `fn` and `stage`."""
        return SimpleNamespace(fn=self.stage, stage="validate" if self.is_evaluating else "train")

    @property
    def progress(self) -> Any:
        """The number of completed epochs, and whether nothing is trained yet."""
        now = self.proxy_target.timestamp
        return HostProgress(
            int(now.epoch),
            is_untrained=not int(now.batch),
            framework="Composer",
            callback=self._callback,
        )

    @property
    def current_epoch(self) -> int:
        """The index of the present epoch; at the hooks that end an epoch, of that epoch."""
        # Composer counts an epoch before the events of its end
        now = self.proxy_target.timestamp
        is_ended = int(now.batch_in_epoch) == 0 and self._is_at_end
        return int(now.epoch) - is_ended

    @property
    def _is_at_end(self) -> bool:
        before, now = self.proxy_target.previous_timestamp, self.proxy_target.timestamp
        return before is not None and before.epoch != now.epoch and before.batch == now.batch

    global_step = property(lambda self: int(self.proxy_target.timestamp.batch))
    """The number of completed steps."""

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
        return float("inf") if length is None else int(length)

    @property
    def num_val_batches(self) -> list[int | float]:
        """The number of batches of each evaluator; infinity if unknown."""
        loaders = [one.dataloader.dataloader for one in self.proxy_target.evaluators]
        return [len(one) if hasattr(one, "__len__") else float("inf") for one in loaders]

    is_last_batch = property(
        lambda self: int(self.proxy_target.timestamp.batch_in_epoch) >= self.num_training_batches
    )
    """Whether the present batch is the last of its epoch."""

    @property
    def callback_metrics(self) -> dict[str, torch.Tensor]:
        """The latest losses, metrics of the model, and values that the callback logged."""
        state = self.proxy_target
        metrics = {
            name: float(value)
            for values in (state.train_metric_values, state.eval_metric_values)
            for name, value in values.items()
            if not isinstance(value, torch.Tensor) or value.numel() == 1
        }
        return numbers_as_tensors({**state.total_loss_dict, **metrics, **self._logged})

    optimizers = property(lambda self: list(self.proxy_target.optimizers))
    """The optimizers."""

    train_dataloader = property(attrgetter("proxy_target.train_dataloader"))
    """The loader of training batches."""

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        first: torch.Tensor = next(self.proxy_target.model.parameters())
        return first.device

    @property
    def precision(self) -> str:
        """The precision of the forward, by trainer_hooks' name."""
        name: str = self.proxy_target.precision.value
        return _PRECISIONS.get(name, name)

    training = property(lambda self: self.stage == "fit" and not self.is_evaluating)
    """Whether batches are being trained."""

    validating = property(lambda self: self.is_evaluating or self.stage == "validate")
    """Whether batches are being evaluated."""

    world_size = property(
        lambda _: distributed.get_world_size() if distributed.is_initialized() else 1
    )
    """The number of processes."""
    global_rank = property(lambda _: distributed.get_rank() if distributed.is_initialized() else 0)
    """The rank of this process."""
    is_global_zero = property(lambda self: self.global_rank == 0)
    """Whether this process has rank 0."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise missing_host_attribute(name, "Composer", self._callback)


_OTHER_MOMENTS = {
    "setup": "fit_start",
    "on_train_start": "fit_start",
    "on_validation_epoch_start": "eval_start",
    "on_validation_epoch_end": "eval_end",
    "on_train_epoch_end": "epoch_checkpoint",
    "on_train_end": "fit_end",
    "on_predict_epoch_start": "predict_start",
    "on_predict_epoch_end": "predict_end",
    "teardown": "fit_end",
}
"""Hooks that are no events of Composer, and the event at which each is called all the same."""

_EVENTS = {
    hook: event
    for hook, event in {**COMPOSER_NAMES, **_OTHER_MOMENTS}.items()
    # Composer has no test: its evaluation is the validation
    if hook != "on_after_load" and not hook.startswith("on_test_")
}

COMPOSER_EVENTS: dict[str, str] = {hook: _EVENTS[hook] for hook in HOOKS if hook in _EVENTS}
"""The event of Composer at which each hook of trainer_hooks is called; those of one event in this
order. `setup` and `teardown` are also called around a standalone evaluation and a prediction.
"""

_STAGES = {"fit_start": "fit", "eval_standalone_start": "validate", "predict_start": "predict"}
_ENDS = {"fit_end": "fit", "eval_standalone_end": "validate", "predict_end": "predict"}


def to_composer(callback: Callback) -> Any:
    """Return a callback of Composer that calls the hooks of a callback of trainer_hooks.

    It has the hooks that both frameworks have. A batch is Composer's, which makes one step.
    `self.log` logs to Composer's logger; `trainer.stop(reason)` and `StopTraining` end the training
    as `state.stop_training()` does. State is kept in Composer's checkpoints, under `trainer_hooks:`
    and the callback's `state_key`.

    Args:
        callback: a callback of trainer_hooks.

    Raises:
        CallbackError: it overrides a hook that Composer has not, or Composer is not installed.
    """
    calls = overridden_hooks(callback, "Composer", COMPOSER_EVENTS, "to_composer")
    base = import_host_framework("composer.core", "Composer", "to_composer", "mosaicml").Callback
    receiver = _ComposerEvents(callback, calls)
    events = {COMPOSER_EVENTS[hook] for hook in calls} | {"init", *_STAGES, *_ENDS}
    methods: dict[str, Any] = {
        event: _event_method(receiver, event) for event in events - {"post_close"}
    }
    # the only method there that is handed neither state nor logger
    methods["post_close"] = lambda _: receiver.post_close()
    if ours(callback).is_stateful:
        methods["state_dict"] = lambda _: callback.state_dict()
        methods["load_state_dict"] = lambda _, state: callback.load_state_dict(state)
    callback_class = type(callback)
    methods["__module__"] = callback_class.__module__
    # Composer saves the states of callbacks under this name
    methods["__qualname__"] = f"trainer_hooks:{callback.state_key}"
    return type(callback_class.__name__, (base,), methods)()


def _event_method(receiver: _ComposerEvents, event: str) -> Callable[..., None]:
    def call(self: Any, state: Any, logger: Any) -> None:  # noqa: ARG001 - a method of theirs
        receiver.on_event(event, state, logger)

    return call


class _ComposerEvents:
    """The receiver of Composer's events that calls a callback's hooks.

    Args:
        callback: the callback of trainer_hooks.
        calls: the callback's methods, by hook.
    """

    def __init__(self, callback: Callback, calls: dict[str, Callable[..., object]]) -> None:
        self._callback = callback
        self._calls = calls
        self._hooks: dict[str, list[str]] = {}
        for hook, event in COMPOSER_EVENTS.items():
            if hook in calls and hook not in ("setup", "teardown"):
                self._hooks.setdefault(event, []).append(hook)
        self._trainer: Any = None
        self._logger: Any = None
        self._log_forwarder = LogForwarder(self._log)  # held here: the callback refers to it weakly

    def on_event(self, event: str, state: Any, logger: Any) -> None:
        """Call the hooks of an event."""
        if self._trainer is None or self._trainer.proxy_target is not state:
            self._trainer = ComposerHostTrainer(state, self._callback)
        self._logger = logger
        trainer = self._trainer
        if event in _STAGES:
            trainer.stage = _STAGES[event]
            ours(self._callback).attach_module(self._log_forwarder)
            self._call("setup", (trainer, state.model, _STAGES[event]))
        elif event in ("eval_start", "eval_end"):
            trainer.is_evaluating = event == "eval_start"
        for hook in self._hooks.get(event, ()):
            if hook == "on_init_end":
                self._call(hook, (trainer,))
            else:
                arguments = _ARGUMENTS[hook](state) if hook in _ARGUMENTS else ()
                self._call(hook, (trainer, state.model, *arguments))
        if event in _ENDS:
            self._call("teardown", (trainer, state.model, _ENDS[event]))
            ours(self._callback).attach_module(None)

    def post_close(self) -> None:
        """Call `on_post_close`."""
        if self._trainer is not None:
            self._call("on_post_close", (self._trainer, self._trainer.proxy_target.model))

    def _call(self, hook: str, arguments: tuple[Any, ...]) -> None:
        call = self._calls.get(hook)
        if call is None:
            return
        try:
            call(*arguments)
        except StopTraining as request:
            self._trainer.stop(str(request))

    def _log(self, name: str, value: float) -> None:
        self._trainer.add_logged(name, value)
        self._logger.log_metrics({name: value})


def _loss(state: Any) -> tuple[Any, ...]:
    return (state.loss,)


def _outputs(state: Any) -> tuple[Any, ...]:
    return (state.outputs,)


def _train_batch_end(state: Any) -> tuple[Any, ...]:
    # not state.loss, which is that of the last microbatch
    loss = torch.tensor(float(state.total_loss_dict["loss/train/total"]))
    return {"loss": loss}, state.batch, int(state.timestamp.batch_in_epoch) - 1


# at the end of a batch Composer's timestamps have counted it, so that its index is one less
_ARGUMENTS: dict[str, Callable[[Any], tuple[Any, ...]]] = {
    "on_before_load": lambda state: (state.load_path,),
    "on_after_dataloader": lambda state: (state.batch,),
    "on_train_batch_start": lambda state: (state.batch, int(state.timestamp.batch_in_epoch)),
    "on_train_batch_end": _train_batch_end,
    "on_after_forward": _outputs,
    "on_after_loss": _loss,
    "on_before_backward": _loss,
    "on_validation_batch_start": lambda state: (state.batch, int(state.eval_timestamp.batch)),
    "on_validation_after_forward": _outputs,
    "on_validation_batch_end": lambda state: (
        state.outputs, state.batch, int(state.eval_timestamp.batch) - 1
    ),
    "on_evaluation_run_start": lambda _: ("validate",),
    "on_evaluation_run_end": lambda _: ("validate",),
    "on_predict_batch_start": lambda state: (state.batch, int(state.predict_timestamp.batch)),
    "on_predict_after_forward": _outputs,
    "on_predict_batch_end": lambda state: (
        state.outputs, state.batch, int(state.predict_timestamp.batch) - 1
    ),
}  # fmt: skip
"""The arguments of a hook after the trainer and the module; none for a hook that is not here."""
