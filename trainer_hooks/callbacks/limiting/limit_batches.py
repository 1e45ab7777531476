"""LimitBatchesCallback: a few batches of each loader, to try a run out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.monitoring import check_count

if TYPE_CHECKING:
    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["LimitBatchesCallback"]


class LimitBatchesCallback(Callback):
    """Take at most so many batches of each loader: in an epoch, a validation, a test, a prediction.

    It is for trying a training out. It takes the place of the trainer's `limit_train_batches` and
    its kin where those are shares or larger numbers; `Trainer(fast_dev_run=...)` writes nothing
    besides. It does nothing in the middle of a run: add it before.

    Args:
        num_batches: how many, from 1 on.

    Attributes:
        num_batches: as given.

    Raises:
        OptionError: the number is none from 1 on.

    Example::

        trainer = Trainer(max_epochs=2, callbacks=[LimitBatchesCallback(2)])
        trainer.fit(module, train_loader, val_loader)
        print(trainer.global_step)
    """

    def __init__(self, num_batches: int) -> None:
        self.num_batches = check_count("num_batches", num_batches, "LimitBatchesCallback", least=1)

    def setup(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Say so before the loaders are made ready."""
        trainer.limit_batches(self.num_batches)
