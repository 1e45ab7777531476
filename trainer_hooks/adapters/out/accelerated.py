"""to_accelerated: one of our callbacks in pytorch-accelerated's Trainer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import torch

from trainer_hooks.adapters.out.accelerated_view import AcceleratedTrainerView, Watched
from trainer_hooks.adapters.out.shared import LogsTo, imported_there, listeners_of
from trainer_hooks.errors import StopTraining

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_hooks.callback import Callback

__all__ = ["ACCELERATED_EVENTS", "to_accelerated"]

_EVALUATION = {
    "start": "on_eval_epoch_start",
    "epoch_start": "on_eval_epoch_start",
    "batch_start": "on_eval_step_start",
    "batch_end": "on_eval_step_end",
    "epoch_end": "on_eval_epoch_end",
    "end": "on_eval_epoch_end",
}

ACCELERATED_EVENTS = {
    "on_init_end": "on_init_end",
    "setup": "on_training_run_start",
    "on_fit_start": "on_training_run_start",
    "on_train_start": "on_training_run_start",
    "on_train_epoch_start": "on_train_epoch_start",
    "on_train_batch_start": "on_train_step_start",
    "on_before_backward": "on_train_step_end",
    "on_train_batch_end": "on_train_step_start",  # the next one, or the epoch's end
    "on_train_batches_end": "on_train_epoch_end",
    **{f"on_validation_{name}": event for name, event in _EVALUATION.items()},
    **{f"on_test_{name}": event for name, event in _EVALUATION.items()},
    "on_evaluation_run_start": "on_evaluation_run_start",
    "on_evaluation_run_end": "on_evaluation_run_end",
    "on_train_epoch_end": "on_training_run_epoch_end",
    "on_train_end": "on_training_run_end",
    "on_fit_end": "on_training_run_end",
    "on_stop_training_error": "on_stop_training_error",
    "teardown": "on_training_run_end",
}
"""Their event at which each hook of ours is called. `on_test_...` and the other hooks of an
evaluation are called in `trainer.evaluate`, those of validation in `trainer.train`."""


def to_accelerated(callback: Callback) -> Any:
    """Return a callback of pytorch-accelerated that stands for one of ours.

    `self.log` goes to `trainer.run_history`; `trainer.stop(reason)` and `StopTraining` end the run
    by a `StopTrainingError`. State is kept in a file of its own in the folder that
    `trainer.save_training_state` writes, from which `train(resume_from=...)` takes it back;
    `trainer.save_checkpoint` there keeps none.

    Args:
        callback: one of ours.

    Raises:
        CallbackError: it overrides a hook that pytorch-accelerated has not, or that is not
            installed.
    """
    verb = "to_accelerated"
    calls = listeners_of(callback, "pytorch-accelerated", ACCELERATED_EVENTS, verb)
    theirs = imported_there(
        "pytorch_accelerated.callbacks", "pytorch-accelerated", verb, "pytorch-accelerated"
    )
    stay = _Stay(callback, calls, theirs.StopTrainingError)
    kind = type(callback)
    methods: dict[str, Any] = {
        event: _event(getattr(stay, event)) for event in dict.fromkeys(ACCELERATED_EVENTS.values())
    }
    methods["__module__"] = kind.__module__
    return type(kind.__name__, (theirs.TrainerCallback,), methods)()


def _event(method: Callable[..., None]) -> Callable[..., None]:
    def event(self: Any, trainer: Any, **given: Any) -> None:  # noqa: ARG001
        method(trainer, given)

    return event


def _keep_state(trainer: Any, callback: Callback) -> None:
    """Let a trainer keep a state beside its own: it has none of callbacks, and tells of no save."""
    save, load = trainer.save_training_state, trainer.load_training_state
    name = f"callback_{quote(callback.state_key, safe='')}.pt"

    def save_training_state(output_dir: Any, checkpoint_kwargs: Any = None) -> None:
        save(output_dir, checkpoint_kwargs)
        if trainer._accelerator.is_main_process:  # noqa: SLF001 - their way
            torch.save(callback.state_dict(), Path(output_dir, name))

    def load_training_state(input_dir: Any) -> Any:
        found = load(input_dir)
        if Path(input_dir, name).exists():
            callback.load_state_dict(torch.load(Path(input_dir, name), weights_only=True))
        return found

    trainer.save_training_state = save_training_state
    trainer.load_training_state = load_training_state


class _Stay:
    """One callback's stay in a trainer there: a method for each event."""

    def __init__(
        self, callback: Callback, calls: dict[str, Callable[..., object]], stop_error: type
    ) -> None:
        self._callback = callback
        self._calls = calls
        self._stop_error = stop_error
        self._view: Any = None
        self._is_fitting = False
        self._to_end: tuple[Any, ...] = ()
        self._eval_batch_idx = 0
        self._logs = LogsTo(self._note)

    # --- the run ---

    def on_init_end(self, trainer: Any, _: Any) -> None:
        """Take part, with the state where the trainer keeps all that a resume needs."""
        self._view = AcceleratedTrainerView(trainer, self._callback)
        if self._callback.is_stateful:
            _keep_state(trainer, self._callback)
        if "on_init_end" in self._calls:
            self._calls["on_init_end"](self._view)

    def on_training_run_start(self, trainer: Any, _: Any) -> None:
        """Begin a fit."""
        self._begin(trainer, "fit")
        self._is_fitting = True
        if "on_train_batch_start" in self._calls:
            trainer._train_dataloader = Watched(trainer._train_dataloader)  # noqa: SLF001 - their way
        if "on_validation_batch_start" in self._calls and trainer._eval_dataloader is not None:  # noqa: SLF001
            trainer._eval_dataloader = Watched(trainer._eval_dataloader)  # noqa: SLF001
        self._call("on_fit_start")
        self._call("on_train_start")

    def on_training_run_end(self, _trainer: Any, _: Any) -> None:
        """End it."""
        self._call("on_train_end")
        self._call("on_fit_end")
        self._call("teardown", "fit")
        self._is_fitting = False

    def on_evaluation_run_start(self, trainer: Any, _: Any) -> None:
        """Begin a test."""
        self._begin(trainer, "test")
        if "on_test_batch_start" in self._calls:
            trainer._eval_dataloader = Watched(trainer._eval_dataloader)  # noqa: SLF001
        self._call("on_evaluation_run_start", "test")

    def on_evaluation_run_end(self, _trainer: Any, _: Any) -> None:
        """End it."""
        self._call("on_evaluation_run_end", "test")
        self._call("teardown", "test")

    def on_stop_training_error(self, _trainer: Any, _: Any) -> None:
        """Tell of a request to stop, in the middle of an epoch perhaps."""
        self._to_end = ()
        self._call("on_stop_training_error", StopTraining(self._view.stop_reason))

    # --- an epoch ---

    def on_train_epoch_start(self, _trainer: Any, _: Any) -> None:
        """Begin an epoch."""
        self._call("on_train_epoch_start")

    def on_train_step_start(self, trainer: Any, _: Any) -> None:
        """End the batch before, and begin one."""
        self._end_batch()
        self._leave_if_asked()
        if "on_train_batch_start" in self._calls:
            loader = trainer._train_dataloader  # noqa: SLF001
            if self._call("on_train_batch_start", loader.batch, loader.batch_idx):
                self._leave_if_asked()

    def on_train_step_end(self, _trainer: Any, given: dict[str, Any]) -> None:
        """Keep what `on_train_batch_end` is told: the step is still to come."""
        output = given["batch_output"]
        self._call("on_before_backward", output["loss"])
        outputs = {"loss": output["loss"].detach()}
        self._to_end = (outputs, given["batch"], given["step"])

    def on_train_epoch_end(self, _trainer: Any, _: Any) -> None:
        """End the epoch's batches."""
        self._end_batch()
        self._call("on_train_batches_end")

    def on_training_run_epoch_end(self, _trainer: Any, _: Any) -> None:
        """End the epoch, after its validation."""
        self._call("on_train_epoch_end")
        self._leave_if_asked()

    # --- an evaluation ---

    def on_eval_epoch_start(self, _trainer: Any, _: Any) -> None:
        """Begin one."""
        self._eval_batch_idx = 0
        self._evaluated("start")
        self._evaluated("epoch_start")

    def on_eval_step_start(self, trainer: Any, _: Any) -> None:
        """Begin a batch of it."""
        if f"on_{self._stage}_batch_start" in self._calls:
            loader = trainer._eval_dataloader  # noqa: SLF001
            self._evaluated("batch_start", loader.batch, self._eval_batch_idx)

    def on_eval_step_end(self, _trainer: Any, given: dict[str, Any]) -> None:
        """End a batch of it."""
        outputs, batch = given["batch_output"], given["batch"]
        self._evaluated("batch_end", outputs, batch, self._eval_batch_idx)
        self._eval_batch_idx += 1

    def on_eval_epoch_end(self, _trainer: Any, _: Any) -> None:
        """End it."""
        self._evaluated("epoch_end")
        self._evaluated("end")

    # --- inside ---

    @property
    def _stage(self) -> str:
        return "validation" if self._is_fitting else "test"

    def _begin(self, trainer: Any, stage: str) -> None:
        self._view = AcceleratedTrainerView(trainer, self._callback)
        self._to_end = ()
        self._callback.attach_module(self._logs)
        self._call("setup", stage)

    def _end_batch(self) -> None:
        told, self._to_end = self._to_end, ()
        if told:
            self._call("on_train_batch_end", *told)

    def _evaluated(self, name: str, *arguments: Any) -> None:
        self._call(f"on_{self._stage}_{name}", *arguments)

    def _call(self, hook: str, *arguments: Any) -> bool:
        """Call a hook; return whether it raised `StopTraining`."""
        call = self._calls.get(hook)
        if call is None:
            return False
        try:
            call(self._view, self._view.module, *arguments)
        except StopTraining as request:
            self._view.stop(str(request))
            return True
        return False

    def _leave_if_asked(self) -> None:
        if self._view.should_stop:
            raise self._stop_error(self._view.stop_reason)

    def _note(self, name: str, value: float) -> None:
        self._view.run_history.update_metric(name, value)
