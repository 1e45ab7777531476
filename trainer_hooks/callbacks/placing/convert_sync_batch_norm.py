"""ConvertSyncBatchNormCallback: BatchNorm whose statistics are those of all processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from torch import nn

from trainer_hooks.callback import Callback
from trainer_hooks.hooks import Band

if TYPE_CHECKING:
    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["ConvertSyncBatchNormCallback"]


class ConvertSyncBatchNormCallback(Callback):
    """Put torch's SyncBatchNorm in the place of BatchNorm where several processes train together.

    Its statistics are then those of the batches of all processes. It is done before the model is
    moved and before its optimizers are made; weights, statistics and names stay. In a run of one
    process nothing is changed.

    Example::

        trainer = Trainer(max_epochs=2, callbacks=[ConvertSyncBatchNormCallback()])
        trainer.fit(module, train_loader, val_loader)
    """

    band: ClassVar[Band] = Band.TRANSFORM

    def on_configure_model(self, trainer: Trainer, module: Module) -> None:
        """Convert the layers."""
        if trainer.world_size > 1:
            for name, part in module.named_children():
                convert = nn.SyncBatchNorm.convert_sync_batchnorm
                setattr(module, name, convert(part))  # type: ignore[no-untyped-call]
