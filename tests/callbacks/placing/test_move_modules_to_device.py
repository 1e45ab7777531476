"""MoveModulesToDeviceCallback in runs."""

from __future__ import annotations

from torch import nn

from trainer_hooks import Callback, Trainer
from trainer_hooks.callbacks import MoveModulesToDeviceCallback
from trainer_hooks.testing import TinyModule


def test_modules_of_trainer_and_callbacks_are_moved(quiet) -> None:
    """Each is moved to the run's device before the first batch."""
    moved = []

    class Noting(nn.Module):
        def to(self, device):
            moved.append((self, device))
            return self

    class Owner(Callback):
        def __init__(self):
            self.metric = Noting()

    owner, own = Owner(), Noting()
    trainer = Trainer(max_epochs=1, callbacks=[MoveModulesToDeviceCallback(), owner], **quiet)
    trainer.metric = own
    trainer.fit(TinyModule())
    assert moved == [(own, trainer.device), (owner.metric, trainer.device)]
