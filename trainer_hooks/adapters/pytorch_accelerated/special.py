"""Adapters of callbacks of pytorch-accelerated that change what a run of theirs consists of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.adapters.pytorch_accelerated.callbacks import AcceleratedGuest
from trainer_hooks.clock import EpochStage

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BarGuest", "EmaGuest", "EvaluatingGuest", "LimitGuest"]


class BarGuest(AcceleratedGuest):
    """Stand for a progress bar, which opens inside an epoch too, where a run is resumed there."""

    def translated(self, hook: str) -> Callable[..., object] | None:
        """Return what calls the guest at `hook`."""
        return self._go_on_inside if hook == "on_train_start" else super().translated(hook)

    def _go_on_inside(self, trainer: Any, _module: Any) -> None:
        is_inside = trainer.progress.stage in {EpochStage.BATCHES, EpochStage.CLOSING}
        if is_inside and self.guest_has("on_train_epoch_start"):
            self.guest.on_train_epoch_start(self.view_of(trainer))


class LimitGuest(AcceleratedGuest):
    """Stand for a LimitBatchesCallback: the loaders stay, the run takes fewer of their batches."""

    def translated(self, hook: str) -> Callable[..., object] | None:
        """Return what limits the run that is set up, in place of what replaces its loaders."""
        return self._limit if hook == "setup" else None

    def _limit(self, trainer: Any, _module: Any, _stage: str) -> None:
        trainer.limit_batches(self.guest.num_batches)


class EvaluatingGuest(AcceleratedGuest):
    """Stand for a StepBasedEvaluationCallback: it evaluates before a batch's step, as there.

    There, it does so between the forward and the backward of a batch; here after the batch before,
    when the weights are the same.
    """

    def translated(self, hook: str) -> Callable[..., object] | None:
        """Return what calls the guest at `hook`; the end of a step comes a batch earlier."""
        if hook in ("on_after_forward", "on_before_backward"):
            return None
        return self._look_ahead if hook == "on_train_batch_end" else super().translated(hook)

    def _look_ahead(
        self, trainer: Any, _module: Any, _outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        is_over = trainer.should_stop or 0 <= trainer.max_steps <= trainer.global_step
        if not trainer.is_last_batch and not is_over:
            self.guest.on_train_step_end(self.view_of(trainer), batch=batch, step=batch_idx + 1)


class EmaGuest(AcceleratedGuest):
    """Stand for a ModelEmaCallback: its validation comes when that of the epoch is over."""

    def translated(self, hook: str) -> Callable[..., object] | None:
        """Return what calls the guest at `hook`; the end of an epoch validates first."""
        if hook == "on_validation_epoch_end":
            return None
        called = super().translated(hook)
        if hook != "on_train_epoch_end" or called is None:
            return called

        def call(trainer: Any, module: Any) -> None:
            if sum(trainer.num_val_batches):
                self.guest.on_eval_epoch_end(self.view_of(trainer))
            called(trainer, module)

        return call

    def guest_state(self) -> dict[str, Any]:
        """Return what it keeps, and the average."""
        average = self.guest.ema_model
        weights = None if average is None else dict(average.module.state_dict())
        return {**super().guest_state(), "ema_model": weights}

    def resume(self, state: dict[str, Any]) -> None:
        """Take back what it kept, into the copy of the model that it made at the start."""
        super().resume({name: value for name, value in state.items() if name != "ema_model"})
        if state["ema_model"] is not None and self.guest.ema_model is not None:
            self.guest.ema_model.module.load_state_dict(state["ema_model"])
