"""ModelModule: the module that a Trainer of this package trains, around the user's model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.module import Module

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn

    from trainer_hooks.compat.accelerated.loss_tracker import LossTracker

__all__ = ["ModelModule"]


class ModelModule(Module):
    """Hand each moment of a run to the trainer's method for it.

    Args:
        model: the user's model.
        tracker: what records the losses.
        clip: what clips gradients after a backward, or None.
        step: what makes a step, given what counts it, in the place of the optimizer, or None.
        clear: what clears gradients in its place, or None.
    """

    def __init__(
        self,
        model: nn.Module,
        tracker: LossTracker,
        clip: Callable[[], None] | None,
        step: Callable[[Any], None] | None,
        clear: Callable[[], None] | None,
    ) -> None:
        super().__init__()
        self.model = model
        self._tracker = [tracker]  # in a list, since a callback is no part of a module
        self._clip = clip
        if step is not None:
            self.optimizer_step = _stepping(step)  # type: ignore[method-assign]
        if clear is not None:
            self.optimizer_zero_grad = _clearing(clear)  # type: ignore[method-assign]

    def forward(self, batch: Any) -> Any:
        """Run the model on a batch."""
        return self.model(batch)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        """Run a training batch; the trainer's method stands in its place."""
        return self.trainer.calculate_train_batch_loss(batch)

    def validation_step(self, batch: Any, batch_idx: int) -> Any:
        """Run an evaluation batch; the trainer's method stands in its place."""
        return self.trainer.calculate_eval_batch_loss(batch)

    def configure_optimizers(self) -> Any:
        """Return the trainer's optimizer, with its scheduler if there is one."""
        optimizer, scheduler = self.trainer.optimizer, self.trainer.scheduler
        if scheduler is None:
            return optimizer
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "step"},
        }

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        """Let the trainer compute the gradients."""
        self.trainer.backward_step(loss)

    def on_after_backward(self) -> None:
        """Clip the gradients, after each batch."""
        if self._clip is not None:
            self._clip()

    def lr_scheduler_step(self, scheduler: Any, metric: Any | None) -> None:
        """Let the trainer step the scheduler."""
        self.trainer.scheduler_step()

    def on_validation_batch_end(
        self, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Log the loss of a validation that the trainer's callbacks do not hear of."""
        if not self._tracker[0].is_evaluating:
            size = outputs["batch_size"]
            self.log("eval_loss_epoch", outputs["loss"], on_epoch=True, batch_size=size)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add what files of pytorch-accelerated hold, under its names."""
        trainer = self.trainer
        checkpoint["model_state_dict"] = self.model.state_dict()
        checkpoint["optimizer_state_dict"] = trainer.optimizer.state_dict()
        if trainer.scheduler is not None:
            checkpoint["scheduler_state_dict"] = trainer.scheduler.state_dict()
        checkpoint.update(trainer.checkpoint_kwargs)


def _stepping(step: Callable[[Any], None]) -> Callable[..., None]:
    def optimizer_step(
        epoch: int,  # noqa: ARG001 - what a module's method is given
        batch_idx: int,  # noqa: ARG001
        optimizer: Any,
        optimizer_closure: Callable[[], Any],
    ) -> None:
        optimizer_closure()
        step(optimizer)

    return optimizer_step


def _clearing(clear: Callable[[], None]) -> Callable[..., None]:
    def optimizer_zero_grad(*_: Any) -> None:
        clear()

    return optimizer_zero_grad
