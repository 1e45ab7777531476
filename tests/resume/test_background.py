"""A run saved in the background at every slot is resumed as one that was held for each file."""

from __future__ import annotations

import pytest
from torch.utils.data import DataLoader

from trainer_hooks import Trainer


@pytest.mark.slow
def test_files_written_in_the_background_are_resumed_exactly(lab, kit, monkeypatch):
    """From any of them the rest of the run is bit-identical, though training went on meanwhile."""
    monkeypatch.setattr(
        Trainer, "save_checkpoint", lambda self, path: self.save_in_background(path)
    )

    def make():
        train = DataLoader(kit.Samples(), batch_size=4, shuffle=True)
        val = DataLoader(kit.Samples(11), batch_size=4)
        options = {"accumulate_grad_batches": 2, "max_epochs": 2}
        return kit.Setup(kit.Net(), train, val, options)

    assert lab.check(make, cuts=lambda name: name in {"batch-02", "batch-05", "epoch-00"}) == 3
