"""Translation of our hooks into the events of pytorch-accelerated, for foreign callbacks and ours.

`AcceleratedAdapter` and `trainer_hooks.compat.accelerated.TrainerCallback` share it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.adapters.hook_names import ACCELERATED_NAMES
from trainer_hooks.clock.progress import EpochStage
from trainer_hooks.data.batch_counts import count_samples
from trainer_hooks.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

EVENTS = dict(ACCELERATED_NAMES)
"""The event of pytorch-accelerated for each hook of ours that fires at its moment."""
# the table pairs it with on_train_step_end, but a training_step of the module's own computes
# its loss without that hook: on_before_backward is fired for every module
del EVENTS["on_after_loss"]

STEP_END = "on_train_step_end"
EVALUATION_STEP_END = "on_eval_step_end"

BATCH_HOOKS = frozenset({"on_train_batch_start", "on_after_forward", "on_before_backward"})
"""Hooks of ours that together give the arguments of `on_train_step_end`."""


class _StepOutput(dict[str, Any]):
    """The `batch_output` of a training step; another key is an error that says where to look."""

    def __missing__(self, key: str) -> Any:
        raise KeyError(
            f"batch_output[{key!r}] at {STEP_END!r}: here it has {', '.join(self)}, not the other "
            "entries that the module's training_step returns. Read them at 'on_eval_step_end', or "
            "train with the Trainer of trainer_hooks.compat.accelerated."
        )


class EventTranslation:
    """Mixin that calls the methods of a listener at the hooks which stand for its events."""

    _batch: Any = None
    _batch_idx: int = 0
    _outputs: Any = None

    # --- what a subclass says of its listener ---

    def _has_event(self, name: str) -> bool:
        """Return whether the listener overrides the method of an event."""
        raise NotImplementedError

    def _event_method(self, name: str) -> Callable[..., object]:
        """Return the listener's method of an event."""
        raise NotImplementedError

    def _event_trainer(self, trainer: Any) -> Any:
        """Return the trainer that the listener is handed."""
        return trainer

    def _step_output(self, trainer: Any, outputs: Any, batch: Any, loss: Any) -> dict[str, Any]:  # noqa: ARG002 - for subclasses
        """Return the `batch_output` of a training step.

        Args:
            trainer: the Trainer.
            outputs: the result of the module's forward, None if it was not seen.
            batch: the batch.
            loss: the loss whose backward follows.
        """
        return _StepOutput(loss=loss, model_outputs=outputs, batch_size=count_samples(batch))

    def _evaluation_output(self, outputs: Any, batch: Any) -> dict[str, Any]:
        """Return the `batch_output` of an evaluation step.

        Args:
            outputs: the result of the module's step.
            batch: the batch.
        """
        output = dict(outputs) if isinstance(outputs, dict) else {}
        output.setdefault("loss", None if isinstance(outputs, dict) else outputs)
        output.setdefault("model_outputs", outputs)
        output.setdefault("batch_size", count_samples(batch))
        return output

    # --- the translation ---

    def _translated_event(self, hook: str) -> Callable[..., object] | None:
        """Return the function to call at a hook of ours, or None if no event stands for it."""
        if hook in BATCH_HOOKS and self._has_event(STEP_END):
            calls: dict[str, Callable[..., object]] = {
                "on_train_batch_start": self._start_step,
                "on_after_forward": self._keep_outputs,
                "on_before_backward": self._end_step,
            }
            return calls[hook]
        name = EVENTS.get(hook)
        if name is None or not self._has_event(name):
            return None
        method = self._event_method(name)
        # on_evaluation_run_start and its end have no "eval_" either, and get the trainer alone
        if "eval_" not in name:
            return lambda trainer, *_: method(self._event_trainer(trainer))

        def call_in_evaluation(trainer: Any, _module: Any, *arguments: Any) -> None:
            if trainer.sanity_checking:
                return
            handed = self._event_trainer(trainer)
            if name == EVALUATION_STEP_END:
                outputs, batch = arguments[:2]
                if outputs is None and trainer.should_stop:
                    return  # a stop before the step, which nothing follows there
                method(handed, batch_output=self._evaluation_output(outputs, batch), batch=batch)
            elif hook.endswith(("epoch_start", "epoch_end")):
                method(handed, is_intermediate=is_intermediate(trainer))
            else:
                method(handed)

        return call_in_evaluation

    def _start_step(self, trainer: Any, _module: Any, batch: Any, batch_idx: int) -> None:
        self._batch, self._batch_idx, self._outputs = batch, batch_idx, None
        if self._has_event("on_train_step_start"):
            self._event_method("on_train_step_start")(self._event_trainer(trainer))

    def _keep_outputs(self, _trainer: Any, _module: Any, outputs: Any) -> None:
        self._outputs = outputs

    def _end_step(self, trainer: Any, _module: Any, loss: Any) -> None:
        # the outputs may hold the graph of the whole batch: no reference to them is kept
        batch, outputs, self._outputs = self._batch, self._outputs, None
        output = self._step_output(trainer, outputs, batch, loss)
        method = self._event_method(STEP_END)
        method(self._event_trainer(trainer), batch_output=output, batch=batch, step=self._batch_idx)
        if output["loss"] is not loss and getattr(trainer, "batch_output", None) is not output:
            raise UsageError(
                f"batch_output['loss'] was set at '{STEP_END}': here the backward is that of the "
                "loss that the module's own step returned. Change the loss in the module, or train "
                "with the Trainer of trainer_hooks.compat.accelerated, which takes the new one."
            )


def is_intermediate(trainer: Any) -> bool:
    """Return whether a validation runs between two batches of an epoch of a fit."""
    return trainer.state.fn == "fit" and trainer.progress.stage is EpochStage.BATCHES
