"""Callbacks that prepare modules before training: SyncBatchNorm conversion, moves to the device."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from torch import nn

from trainer_hooks.callback import Callback
from trainer_hooks.hooks.band import Band

if TYPE_CHECKING:
    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module


class ConvertSyncBatchNormCallback(Callback):
    """Replace BatchNorm layers by torch's SyncBatchNorm in a run of several processes.

    The layers' statistics are then those of the batches of all ranks. The layers are converted
    before the model is moved and before its optimizers are made; weights, statistics and names
    stay. In a run of one process no layer is changed.

    Example::

        trainer = Trainer(max_epochs=2, callbacks=[ConvertSyncBatchNormCallback()])
        trainer.fit(module, train_loader, val_loader)
    """

    band: ClassVar[Band] = Band.TRANSFORM

    def on_configure_model(self, trainer: Trainer, module: Module) -> None:
        """Convert the module's BatchNorm layers."""
        if trainer.world_size > 1:
            # convert the children, not the module: a conversion returns new layers, and the module
            # object itself must stay the one that the user holds
            for name, part in module.named_children():
                convert = nn.SyncBatchNorm.convert_sync_batchnorm
                setattr(module, name, convert(part))  # type: ignore[no-untyped-call]


class MoveModulesToDeviceCallback(Callback):
    """Move modules that are attributes of the trainer, or of its callbacks, to the run's device.

    The trainer moves the model with all its submodules. A module that a subclass of Trainer or a
    callback holds, such as a metric of torchmetrics or a loss with weights, stays where it was
    made; this callback moves it when a run begins. Lists and dicts are not searched: put modules
    into a `ModuleList` or a `ModuleDict`.

    Example::

        class Scorer(Callback):
            def __init__(self):
                self.loss = torch.nn.CrossEntropyLoss(weight=torch.ones(10))

        trainer = Trainer(max_epochs=2, callbacks=[MoveModulesToDeviceCallback(), Scorer()])
        trainer.fit(module, train_loader, val_loader)
    """

    band: ClassVar[Band] = Band.TRANSFORM

    def on_configure_model(self, trainer: Trainer, module: Module) -> None:
        """Move the modules of the trainer and of its callbacks to the device."""
        for owner in (trainer, *trainer.callbacks):
            for value in getattr(owner, "__dict__", {}).values():
                # the run moves the module itself
                if isinstance(value, nn.Module) and value is not module:
                    value.to(trainer.device)
