"""MoveModulesToDeviceCallback: modules that a trainer or its callbacks keep, where the model is."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from torch import nn

from trainer_hooks.callback import Callback
from trainer_hooks.hooks import Band

if TYPE_CHECKING:
    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["MoveModulesToDeviceCallback"]


class MoveModulesToDeviceCallback(Callback):
    """Move modules that are attributes of the trainer, or of its callbacks, to the run's device.

    The trainer moves the model, and with it all that it is made of. What a subclass of Trainer, or
    a callback, keeps for itself, such as a metric of torchmetrics or a loss with weights, stays
    where it was made; this moves it as a run begins. Lists and dicts are not looked into: put
    modules into a `ModuleList` or a `ModuleDict`.

    Example::

        class Scorer(Callback):
            def __init__(self):
                self.loss = torch.nn.CrossEntropyLoss(weight=torch.ones(10))

        trainer = Trainer(max_epochs=2, callbacks=[MoveModulesToDeviceCallback(), Scorer()])
        trainer.fit(module, train_loader, val_loader)
    """

    band: ClassVar[Band] = Band.TRANSFORM

    def on_configure_model(self, trainer: Trainer, module: Module) -> None:
        """Move them."""
        for owner in (trainer, *trainer.callbacks):
            for value in getattr(owner, "__dict__", {}).values():
                if isinstance(value, nn.Module) and value is not module:
                    value.to(trainer.device)
