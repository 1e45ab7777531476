"""LossTracker: mean losses of epochs and evaluations, as pytorch-accelerated records them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from trainer_hooks.adapters.pytorch_accelerated.events import is_intermediate
from trainer_hooks.callback import Callback
from trainer_hooks.connector.state_types import checks_state
from trainer_hooks.hooks.band import Band
from trainer_hooks.hooks.spec import keeps_optimizers

if TYPE_CHECKING:
    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module

__all__ = ["LossTracker"]

_INTERMEDIATE = "intermediate_eval_loss"


class LossTracker(Callback):
    """Record the losses of epochs and evaluations in the run's history, weighted by batch size.

    `train_loss_epoch` is there before an epoch's evaluation begins, and `eval_loss_epoch`, or
    outside of a training `evaluation_loss`, before the callbacks' hooks of an evaluation's end: it
    is called before all other callbacks.

    Attributes:
        former: the state of an earlier history with which the next fit begins, or None.
        former_epochs: the epochs of that history.

    State: the sum of the current epoch's losses.
    """

    band: ClassVar[Band] = Band.TRANSFORM

    def __init__(self) -> None:
        self._train = _Mean()
        self._eval: _Mean | None = None
        self.former: dict[str, Any] | None = None
        self.former_epochs = 0

    @property
    def is_evaluating(self) -> bool:
        """Whether it takes part in the current evaluation."""
        return self._eval is not None

    def state_dict(self) -> dict[str, Any]:
        """Return the sum and its number of samples."""
        return {"total": self._train.total, "count": self._train.count}

    @checks_state({"total": Tensor | None, "count": int})
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the sum."""
        self._train = _Mean(state_dict["total"], state_dict["count"])

    @keeps_optimizers
    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Restore the history of the training before, if the user asked to keep it."""
        former, self.former = self.former, None
        if former is not None:
            trainer.history.load_state_dict(former)
            trainer.history.epochs_before = self.former_epochs

    def on_train_epoch_start(self, trainer: Trainer, module: Module) -> None:
        """Reset the sum of the training losses."""
        self._train = _Mean()

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Add the loss of a batch, divided as for its backward."""
        # a skipped batch has none
        if outputs:
            # theirs is divided before it is recorded: windows of two batches halve the logged loss
            loss = outputs["loss"] / trainer.accumulate_grad_batches
            self._train.add(loss, outputs["batch_size"])

    def on_train_batches_end(self, trainer: Trainer, module: Module) -> None:
        """Record the epoch's loss."""
        self._record(trainer, "train_loss_epoch", self._train)

    def on_validation_start(self, trainer: Trainer, module: Module) -> None:
        """Reset the sum of the evaluation losses."""
        self._eval = _Mean()

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        module: Module,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Add the loss of a batch."""
        if self._eval is not None and outputs:
            self._eval.add(outputs["loss"], outputs["batch_size"])

    def on_validation_epoch_end(self, trainer: Trainer, module: Module) -> None:
        """Record the evaluation's loss."""
        if self._eval is not None:
            # the names of pytorch-accelerated's Trainer, which its callbacks watch by default
            name = "eval_loss_epoch" if trainer.state.fn == "fit" else "evaluation_loss"
            self._record(trainer, _INTERMEDIATE if is_intermediate(trainer) else name, self._eval)

    def on_validation_end(self, trainer: Trainer, module: Module) -> None:
        """Delete the loss of an evaluation inside an epoch, which all callbacks have seen."""
        self._eval = None
        # there StepBasedEvaluationCallback deletes it
        if _INTERMEDIATE in trainer.history.get_metric_names():
            trainer.history.delete_metric(_INTERMEDIATE)

    def on_stop_training_error(
        self, trainer: Trainer, module: Module, exception: BaseException
    ) -> None:
        """Print why the training ends."""
        # as there, where the StopTrainingError is printed
        trainer.print(trainer.stop_reason)

    def teardown(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Reset an evaluation that was interrupted."""
        self._eval = None

    def _record(self, trainer: Trainer, name: str, mean: _Mean) -> None:
        if mean.count:
            trainer.history.update_metric(name, mean.value)


class _Mean:
    """A weighted mean, summed on the losses' device."""

    def __init__(self, total: Tensor | None = None, count: int = 0) -> None:
        self.total = total
        self.count = count

    @property
    def value(self) -> Tensor:
        assert self.total is not None
        return (self.total / self.count).to(torch.float32)

    def add(self, loss: Tensor, size: int) -> None:
        # in 64 bits, as a mean over an epoch loses digits in 32; MPS has no float64
        wide = torch.float32 if loss.device.type == "mps" else torch.float64
        part = loss.detach().mean().to(wide) * size
        self.total = part if self.total is None else self.total.to(part.device) + part
        self.count += size
