"""ConvertSyncBatchNormCallback."""

from __future__ import annotations

import pytest
from torch import nn

from trainer_hooks import Trainer
from trainer_hooks.callbacks import ConvertSyncBatchNormCallback
from trainer_hooks.testing import TinyModule


@pytest.mark.parametrize("processes", [1, 2])
def test_batch_norm_is_converted_for_several_processes(quiet, processes) -> None:
    """Layers inside of others too, with the same names; of one process nothing is."""

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
