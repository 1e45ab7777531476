"""ConvertSyncBatchNormCallback and MoveModulesToDeviceCallback."""

from __future__ import annotations

import pytest
from torch import nn

from trainer_hooks import Callback, Trainer
from trainer_hooks.callbacks import ConvertSyncBatchNormCallback, MoveModulesToDeviceCallback
from trainer_hooks.testing import TinyModule


@pytest.mark.parametrize("processes", [1, 2])
def test_batch_norm_is_converted_for_several_processes(quiet, processes) -> None:
    """Nested layers are converted too, under the same names; in one process no layer is."""

    class Several(Trainer):
        world_size = processes

    class Normed(TinyModule):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(2)
            self.more = nn.Sequential(nn.BatchNorm1d(2))

    module = Normed()
    names = list(module.state_dict())
    ConvertSyncBatchNormCallback().on_configure_model(Several(**quiet), module)
    kind = nn.SyncBatchNorm if processes > 1 else nn.BatchNorm1d
    assert type(module.norm) is type(module.more[0]) is kind
    assert list(module.state_dict()) == names


def test_modules_of_trainer_and_callbacks_are_moved(quiet) -> None:
    """Each module is moved to the run's device before the first batch."""
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
