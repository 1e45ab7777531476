"""to_transformers: export one of our callbacks to Hugging Face's Trainer."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks._names import ours
from trainer_hooks.adapters.export.host_trainer import (
    FitOptions,
    HostProgress,
    LogForwarder,
    import_host_framework,
    missing_host_attribute,
    numbers_as_tensors,
    overridden_hooks,
)
from trainer_hooks.adapters.proxy import Proxy
from trainer_hooks.context.run_state import TrainerFn
from trainer_hooks.errors import StopTraining

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from trainer_hooks.callback import Callback


class _FitState(Proxy):
    """The TrainerState, which is that of a fit."""

    __slots__ = ()

    fn = TrainerFn.FITTING


class TransformersHostTrainer(FitOptions):
    """The arguments of an event there, under the names of our Trainer.

    Args:
        callback: the callback that it is handed to, for errors.
        args: the TrainingArguments.
        state: the TrainerState.
        control: the TrainerControl, in which requests are made.
        arguments: the event's other arguments, such as `model`.
    """

    def __init__(
        self, callback: Callback, args: Any, state: Any, control: Any, arguments: dict[str, Any]
    ) -> None:
        self._callback = callback
        self._control = control
        self.args, self.state = args, _FitState(state)
        self.module = arguments.get("model")
        self.optimizers = [] if arguments.get("optimizer") is None else [arguments["optimizer"]]
        self.train_dataloader = arguments.get("train_dataloader")
        self.val_dataloaders = arguments.get("eval_dataloader")
        self.global_step = int(state.global_step)
        self.current_epoch = int(state.epoch or 0)
        self.max_epochs = int(state.num_train_epochs or args.num_train_epochs)
        self.max_steps = int(state.max_steps or args.max_steps)
        self.default_root_dir = args.output_dir
        self.accumulate_grad_batches = args.gradient_accumulation_steps
        self.log_every_n_steps = args.logging_steps
        self.is_global_zero = state.is_world_process_zero
        # an evaluation comes after the event of an epoch's end
        self.val_check_interval = 1
        self.num_val_batches = [] if self.val_dataloaders is None else [len(self.val_dataloaders)]
        self.callback_metrics: dict[str, Tensor] = {}

    @property
    def progress(self) -> HostProgress:
        """The number of epochs, and whether the training is fresh."""
        return HostProgress(
            self.current_epoch,
            is_untrained=self.global_step == 0,
            framework="transformers",
            callback=self._callback,
        )

    should_stop = property(lambda self: bool(self._control.should_training_stop))
    """Whether the training ends after the current step."""

    has_to_validate = property(lambda self: bool(self._control.should_evaluate))
    """Whether an evaluation follows the current event."""

    device = property(lambda self: torch.device(self.args.device))
    """The device of the model."""

    world_size = property(lambda self: int(self.args.world_size))
    """The number of processes."""

    def stop(self, reason: str = "") -> None:  # noqa: ARG002 - transformers keeps none
        """End the training after the current step."""
        self._control.should_training_stop = True

    def end_epoch(self) -> None:
        """End the epoch after the current batch."""
        self._control.should_epoch_stop = True

    def request_validation(self) -> None:
        """Request an evaluation after the current step."""
        self._control.should_evaluate = True

    def request_checkpoint(self) -> None:
        """Request a checkpoint after the current step."""
        self._control.should_save = True

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise missing_host_attribute(name, "transformers", self._callback)


TRANSFORMERS_EVENTS = {
    "on_init_end": "on_init_end",
    "setup": "on_train_begin",
    "on_fit_start": "on_train_begin",
    "on_train_start": "on_train_begin",
    "on_train_epoch_start": "on_epoch_begin",
    "on_before_train_batch": "on_step_begin",
    "on_train_batch_start": "",  # the forward
    "on_after_train_batch": "on_pre_optimizer_step",
    "on_after_optimizer_step": "on_optimizer_step",
    "on_train_batch_end": "on_step_end",  # or on_substep_end
    "on_train_batches_end": "on_epoch_end",
    "on_validation_batch_end": "on_prediction_step",
    "on_validation_epoch_end": "on_evaluate",
    "on_validation_end": "on_evaluate",
    "on_train_epoch_end": "on_epoch_end",  # or on_evaluate, if an evaluation follows
    "on_test_epoch_end": "on_predict",
    "on_test_end": "on_predict",
    "on_checkpoint_saved": "on_save",
    "on_log": "on_log",
    "on_train_end": "on_train_end",
    "on_fit_end": "on_train_end",
    "teardown": "on_train_end",
}
"""Their event at which each hook of ours is called. Events bring no batch: hooks are given the
arguments of the model's forward, before which `on_train_batch_start` is called."""

_EVENTS = (
    *(event for event in dict.fromkeys(TRANSFORMERS_EVENTS.values()) if event),
    "on_substep_end",
)


def to_transformers(callback: Callback) -> Any:
    """Return a callback of transformers that calls the hooks of one of ours.

    `self.log` adds to what the Trainer logs next; `trainer.stop(reason)` and `StopTraining` end the
    training, and requests for validations, checkpoints and the epoch's end are made in the control
    object. State is kept in `trainer_state.json` of their checkpoints, and is restored where
    `TrainingArguments(restore_callback_states_from_checkpoint=True)` says so.

    Args:
        callback: one of our callbacks.

    Raises:
        CallbackError: it overrides a hook that transformers does not have, or that is not
            installed.
    """
    calls = overridden_hooks(callback, "transformers", TRANSFORMERS_EVENTS, "to_transformers")
    theirs = import_host_framework(
        "transformers.trainer_callback", "transformers", "to_transformers", "'transformers[torch]'"
    )
    events, kind = _TransformersEvents(callback, calls), type(callback)
    methods: dict[str, Any] = {event: _event(callback, getattr(events, event)) for event in _EVENTS}
    methods["__module__"] = kind.__module__
    if not ours(callback).is_stateful:
        return type(kind.__name__, (theirs.TrainerCallback,), methods)()
    # to restore, their Trainer makes a new object with "args" and sets the attributes on it: it can
    # only reach our callback through the closure of a property
    methods["state"] = lambda _: {
        "args": {},
        "attributes": {"packed_state": _encode_state(callback)},
    }
    methods["packed_state"] = property(
        lambda _: _encode_state(callback),
        lambda _, packed: callback.load_state_dict(
            torch.load(io.BytesIO(base64.b64decode(packed)), weights_only=True)
        ),
    )
    # there a state is looked up by the class's name, and of two of one name the first is kept
    name = f"trainer_hooks:{callback.state_key}"
    return type(name, (theirs.TrainerCallback, theirs.ExportableState), methods)()


def _event(callback: Callback, method: Callable[..., None]) -> Callable[..., None]:
    def event(self: Any, args: Any, state: Any, control: Any, **arguments: Any) -> None:  # noqa: ARG001
        method(TransformersHostTrainer(callback, args, state, control, arguments), arguments)

    return event


def _encode_state(callback: Callback) -> str:
    """Return the callback's state as text: their file is JSON, which has no tensors."""
    buffer = io.BytesIO()
    torch.save(callback.state_dict(), buffer)
    return base64.b64encode(buffer.getvalue()).decode("ascii")


class _TransformersEvents:
    """The events of one exported callback: a method for each, which calls hooks of ours.

    Args:
        callback: our callback.
        calls: the hooks that it overrides, with the function to call for each.
    """

    def __init__(self, callback: Callback, calls: dict[str, Callable[..., object]]) -> None:
        self.callback = callback
        self._calls = calls
        self._logs = LogForwarder(self._record)
        self._logged: dict[str, float] = {}
        self._metrics: dict[str, Tensor] = {}
        self._handles: list[Any] = []
        self._trainer: Any = None
        self._epoch = self._batch_idx = self._eval_batch_idx = 0
        self._batch: Any = None
        self._outputs: Any = None
        self._is_fitting = self._is_begun = self._is_open = self._has_to_end_epoch = False

    # --- the run ---

    def on_init_end(self, trainer: Any, _: Any) -> None:
        """Call `on_init_end`."""
        if "on_init_end" in self._calls:
            self._calls["on_init_end"](trainer)

    def on_train_begin(self, trainer: Any, arguments: Any) -> None:
        """Call the hooks of a fit's start, and watch the model's forward for its batches."""
        ours(self.callback).attach_module(self._logs)
        self._is_fitting, self._is_begun, self._has_to_end_epoch = True, False, False
        self._epoch = trainer.current_epoch
        model = arguments["model"]
        self._handles = [
            model.register_forward_pre_hook(self._before_forward, with_kwargs=True),
            model.register_forward_hook(self._after_forward, with_kwargs=True),
        ]
        self._call(trainer, "setup", "fit")
        self._call(trainer, "on_fit_start")
        self._call(trainer, "on_train_start")

    def on_train_end(self, trainer: Any, _: Any) -> None:
        """Call the hooks of a fit's end."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._is_fitting = False
        self._epoch = trainer.current_epoch
        self._call(trainer, "on_train_end")
        self._call(trainer, "on_fit_end")
        self._call(trainer, "teardown", "fit")

    # --- an epoch ---

    def on_epoch_begin(self, trainer: Any, arguments: Any) -> None:
        """Call `on_train_epoch_start`, unless the run is resumed inside the epoch."""
        fraction = 0.0
        if self._is_begun:  # `epoch` there may hold a fraction of an epoch that ended early
            self._epoch += 1
        else:
            self._is_begun, fraction = True, (trainer.state.epoch or 0) - self._epoch
        self._batch_idx = round(fraction * len(arguments["train_dataloader"])) if fraction else 0
        if not fraction:
            self._call(trainer, "on_train_epoch_start")

    def on_step_begin(self, trainer: Any, _: Any) -> None:
        """Call the hook of a window's start."""
        self._trainer = trainer
        self._call(trainer, "on_before_train_batch")

    def on_pre_optimizer_step(self, trainer: Any, _: Any) -> None:
        """Call the hook before the optimizer step."""
        self._call(trainer, "on_after_train_batch")

    def on_optimizer_step(self, trainer: Any, arguments: Any) -> None:
        """Call the hook after the optimizer step."""
        self._call(trainer, "on_after_optimizer_step", arguments["optimizer"])

    def on_substep_end(self, trainer: Any, _: Any) -> None:
        """Call the hook of a batch's end; inside a window there it is another event."""
        self._is_open = False
        self._call(
            trainer, "on_train_batch_end", _with_loss(self._outputs), self._batch, self._batch_idx
        )
        self._batch_idx += 1

    on_step_end = on_substep_end

    def on_epoch_end(self, trainer: Any, _: Any) -> None:
        """Call the hooks of an epoch's last batch and, unless an evaluation follows, of its end."""
        self._call(trainer, "on_train_batches_end")
        # known by now: their DefaultFlowCallback, which asks for it, comes before the user's
        self._has_to_end_epoch = trainer.has_to_validate
        if not self._has_to_end_epoch:
            self._call(trainer, "on_train_epoch_end")

    # --- an evaluation ---

    def on_prediction_step(self, trainer: Any, _: Any) -> None:
        """Call the hook of a validation batch's end; outside a fit events do not tell the stage."""
        if self._is_fitting:
            self._call(
                trainer, "on_validation_batch_end", self._outputs, self._batch,
                self._eval_batch_idx,
            )  # fmt: skip
            self._eval_batch_idx += 1

    def on_evaluate(self, trainer: Any, arguments: Any) -> None:
        """Call the hooks of an evaluation's end, and of the epoch's end if it waited for it."""
        self._eval_batch_idx = 0
        self._metrics |= numbers_as_tensors(arguments["metrics"])
        self._call(trainer, "on_validation_epoch_end")
        self._call(trainer, "on_validation_end")
        if self._has_to_end_epoch:
            self._has_to_end_epoch = False
            self._call(trainer, "on_train_epoch_end")

    def on_predict(self, trainer: Any, arguments: Any) -> None:
        """Call the hooks of a test's end, which is a prediction there."""
        self._metrics |= numbers_as_tensors(arguments["metrics"])
        self._call(trainer, "on_test_epoch_end")
        self._call(trainer, "on_test_end")

    # --- files and logs ---

    def on_save(self, trainer: Any, _: Any) -> None:
        """Call `on_checkpoint_saved` with the checkpoint's folder."""
        # the event brings no path, but this is how they name the folder
        path = Path(trainer.default_root_dir, f"checkpoint-{trainer.global_step}")
        self._call(trainer, "on_checkpoint_saved", path)

    def on_log(self, trainer: Any, arguments: Any) -> None:
        """Add the values that the callback logged since, and call `on_log`."""
        logs, added = arguments["logs"], self._logged
        self._logged = {}
        # two dicts: a copy with the step went to the history before the event
        logs.update(added)
        trainer.state.log_history[-1].update(added)
        self._metrics |= numbers_as_tensors(logs)
        self._call(trainer, "on_log", logs, trainer.global_step)

    # --- inside ---

    def _before_forward(self, model: Any, args: Any, kwargs: Any) -> None:
        # a second forward of the same batch begins none, nor does that of an evaluation
        if model.training and not self._is_open:
            self._is_open, batch = True, kwargs or args
            self._call(self._trainer, "on_train_batch_start", batch, self._batch_idx)

    def _after_forward(self, _model: Any, args: Any, kwargs: Any, outputs: Any) -> None:
        self._batch, self._outputs = kwargs or args, outputs

    def _call(self, trainer: Any, hook: str, *arguments: Any) -> None:
        call = self._calls.get(hook)
        if call is None:
            return
        trainer.callback_metrics = self._metrics
        if self._is_fitting:  # there the epoch is counted before it ends
            trainer.current_epoch = self._epoch
        try:
            call(trainer, trainer.module, *arguments)
        except StopTraining:
            trainer.stop()

    def _record(self, name: str, value: float) -> None:
        self._logged[name] = value
        self._metrics[name] = torch.tensor(value)


def _with_loss(outputs: Any) -> dict[str, Any]:
    loss = outputs.get("loss") if hasattr(outputs, "get") else None
    return {} if loss is None else {"loss": loss.detach()}
