"""to_transformers: one of our callbacks in Hugging Face's Trainer."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks.adapters.out.shared import LogsTo, imported_there, listeners_of, tensors_of
from trainer_hooks.adapters.out.transformers_view import TransformersTrainerView
from trainer_hooks.errors import StopTraining

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from trainer_hooks.callback import Callback

__all__ = ["TRANSFORMERS_EVENTS", "to_transformers"]

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
"""Their event at which each hook of ours is called. Events bring no batch: what a hook is handed
was seen in the model's forward, before which `on_train_batch_start` is called."""

_EVENTS = (
    *(event for event in dict.fromkeys(TRANSFORMERS_EVENTS.values()) if event),
    "on_substep_end",
)


def to_transformers(callback: Callback) -> Any:
    """Return a callback of transformers that stands for one of ours.

    `self.log` adds to what the Trainer logs next; `trainer.stop(reason)` and `StopTraining` end the
    training, and requests for validations, checkpoints and the epoch's end are made in the control
    object. State is kept in `trainer_state.json` of their checkpoints, and comes back where
    `TrainingArguments(restore_callback_states_from_checkpoint=True)` says so.

    Args:
        callback: one of ours.

    Raises:
        CallbackError: it overrides a hook that transformers has not, or that is not installed.
    """
    calls = listeners_of(callback, "transformers", TRANSFORMERS_EVENTS, "to_transformers")
    theirs = imported_there(
        "transformers.trainer_callback", "transformers", "to_transformers", "'transformers[torch]'"
    )
    stay, kind = _Stay(callback, calls), type(callback)
    methods: dict[str, Any] = {event: _event(callback, getattr(stay, event)) for event in _EVENTS}
    methods["__module__"] = kind.__module__
    if not callback.is_stateful:
        return type(kind.__name__, (theirs.TrainerCallback,), methods)()
    methods["state"] = lambda _: {"args": {}, "attributes": {"packed_state": _packed(callback)}}
    methods["packed_state"] = property(
        lambda _: _packed(callback),
        lambda _, packed: callback.load_state_dict(_unpacked(packed)),
    )
    # there a state is found by the class's name, and of two of a name the first state is kept
    name = f"trainer_hooks:{callback.state_key}"
    return type(name, (theirs.TrainerCallback, theirs.ExportableState), methods)()


def _event(callback: Callback, method: Callable[..., None]) -> Callable[..., None]:
    def event(self: Any, args: Any, state: Any, control: Any, **given: Any) -> None:  # noqa: ARG001
        method(TransformersTrainerView(callback, args, state, control, given), given)

    return event


def _packed(callback: Callback) -> str:
    """Return a state as text: their file is JSON, which has no tensors."""
    buffer = io.BytesIO()
    torch.save(callback.state_dict(), buffer)
    return base64.b64encode(buffer.getvalue()).decode("ascii")


def _unpacked(packed: str) -> Any:
    return torch.load(io.BytesIO(base64.b64decode(packed)), weights_only=True)


class _Stay:
    """One callback's stay in a trainer there: a method for each event."""

    def __init__(self, callback: Callback, calls: dict[str, Callable[..., object]]) -> None:
        self.callback = callback
        self._calls = calls
        self._logs = LogsTo(self._note)
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
        """Take part."""
        if "on_init_end" in self._calls:
            self._calls["on_init_end"](trainer)

    def on_train_begin(self, trainer: Any, given: Any) -> None:
        """Begin a fit; batches and outputs are seen in the model's forward."""
        self.callback.attach_module(self._logs)
        self._is_fitting, self._is_begun, self._has_to_end_epoch = True, False, False
        self._epoch = trainer.current_epoch
        model = given["model"]
        self._handles = [
            model.register_forward_pre_hook(self._before_forward, with_kwargs=True),
            model.register_forward_hook(self._after_forward, with_kwargs=True),
        ]
        self._call(trainer, "setup", "fit")
        self._call(trainer, "on_fit_start")
        self._call(trainer, "on_train_start")

    def on_train_end(self, trainer: Any, _: Any) -> None:
        """End it."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._is_fitting = False
        self._epoch = trainer.current_epoch
        self._call(trainer, "on_train_end")
        self._call(trainer, "on_fit_end")
        self._call(trainer, "teardown", "fit")

    # --- an epoch ---

    def on_epoch_begin(self, trainer: Any, given: Any) -> None:
        """Begin an epoch, or go on with one inside of which a checkpoint was saved."""
        share = 0.0
        if self._is_begun:  # a share may be left there of an epoch that ended early
            self._epoch += 1
        else:
            self._is_begun, share = True, (trainer.state.epoch or 0) - self._epoch
        self._batch_idx = round(share * len(given["train_dataloader"])) if share else 0
        if not share:
            self._call(trainer, "on_train_epoch_start")

    def on_step_begin(self, trainer: Any, _: Any) -> None:
        """Begin a window."""
        self._trainer = trainer
        self._call(trainer, "on_before_train_batch")

    def on_pre_optimizer_step(self, trainer: Any, _: Any) -> None:
        """Before the step."""
        self._call(trainer, "on_after_train_batch")

    def on_optimizer_step(self, trainer: Any, given: Any) -> None:
        """After it."""
        self._call(trainer, "on_after_optimizer_step", given["optimizer"])

    def on_substep_end(self, trainer: Any, _: Any) -> None:
        """End a batch inside a window."""
        self._is_open = False
        self._call(
            trainer, "on_train_batch_end", _with_loss(self._outputs), self._batch, self._batch_idx
        )
        self._batch_idx += 1

    def on_step_end(self, trainer: Any, given: Any) -> None:
        """End a window's last batch."""
        self.on_substep_end(trainer, given)

    def on_epoch_end(self, trainer: Any, _: Any) -> None:
        """End an epoch's batches, and the epoch itself unless an evaluation follows."""
        self._call(trainer, "on_train_batches_end")
        self._has_to_end_epoch = trainer.has_to_validate
        if not self._has_to_end_epoch:
            self._call(trainer, "on_train_epoch_end")

    # --- an evaluation ---

    def on_prediction_step(self, trainer: Any, _: Any) -> None:
        """End a batch of an evaluation in a fit; outside of one nobody says what it is."""
        if self._is_fitting:
            self._call(
                trainer, "on_validation_batch_end", self._outputs, self._batch,
                self._eval_batch_idx,
            )  # fmt: skip
            self._eval_batch_idx += 1

    def on_evaluate(self, trainer: Any, given: Any) -> None:
        """End an evaluation, and the epoch if it is its own."""
        self._eval_batch_idx = 0
        self._metrics |= tensors_of(given["metrics"])
        self._call(trainer, "on_validation_epoch_end")
        self._call(trainer, "on_validation_end")
        if self._has_to_end_epoch:
            self._has_to_end_epoch = False
            self._call(trainer, "on_train_epoch_end")

    def on_predict(self, trainer: Any, given: Any) -> None:
        """End a prediction, which is a test there."""
        self._metrics |= tensors_of(given["metrics"])
        self._call(trainer, "on_test_epoch_end")
        self._call(trainer, "on_test_end")

    # --- files and logs ---

    def on_save(self, trainer: Any, _: Any) -> None:
        """Tell of a checkpoint."""
        path = Path(trainer.default_root_dir, f"checkpoint-{trainer.global_step}")
        self._call(trainer, "on_checkpoint_saved", path)

    def on_log(self, trainer: Any, given: Any) -> None:
        """Add what the callback logged since, and tell of all."""
        logs, added = given["logs"], self._logged
        self._logged = {}
        logs.update(added)
        trainer.state.log_history[-1].update(added)
        self._metrics |= tensors_of(logs)
        self._call(trainer, "on_log", logs, trainer.global_step)

    # --- inside ---

    def _before_forward(self, model: Any, args: Any, kwargs: Any) -> None:
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

    def _note(self, name: str, value: float) -> None:
        self._logged[name] = value
        self._metrics[name] = torch.tensor(value)


def _with_loss(outputs: Any) -> dict[str, Any]:
    loss = outputs.get("loss") if hasattr(outputs, "get") else None
    return {} if loss is None else {"loss": loss.detach()}
