"""What becomes of a loader whose epoch is over."""

from __future__ import annotations

import multiprocessing

import torch
from torch.utils.data import DataLoader

from trainer_hooks import Callback


def test_workers_end_with_the_batches_of_an_epoch(bare, tiny) -> None:
    """While an epoch is validated none of its training workers waits for anything."""
    rows = list(torch.zeros(4, 2))
    found = {"training": 0, "validation": 0}

    class Counts(Callback):
        def on_train_batch_start(self, trainer, module, batch, batch_idx):
            found["training"] = len(multiprocessing.active_children())

        def on_validation_start(self, trainer, module):
            found["validation"] = len(multiprocessing.active_children())

    trainer = bare(Counts(), limit_train_batches=2)
    trainer.fit(tiny(), DataLoader(rows, 1, num_workers=1), DataLoader(rows, 1))
    assert found == {"training": 1, "validation": 0}
