"""What becomes of a loader whose epoch is over."""

from __future__ import annotations

import gc
import multiprocessing

import pytest
import torch
from torch.utils.data import DataLoader

from trainer_hooks import Callback, Run


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


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
@pytest.mark.parametrize(
    ("stage", "hook"),
    [
        ("fit", "on_train_batch_end"),
        ("fit", "on_validation_batch_end"),
        ("validate", "on_validation_batch_end"),
        ("run", "on_train_batch_start"),
    ],
)
def test_workers_end_with_a_run_that_an_error_ends(
    bare, tiny, tmp_path, stage, hook, error
) -> None:
    """None is left to the garbage collector, with which torch waits 5 s for each."""

    class Raises(Callback):
        def run_event(self, event, *args):
            if event == hook:
                raise error

    def loader():
        return DataLoader(list(torch.zeros(4, 2)), 1, num_workers=1)

    def go() -> None:
        if stage == "fit":
            bare(Raises()).fit(tiny(), loader(), loader())
        elif stage == "validate":
            bare(Raises()).validate(tiny(), loader())
        else:
            where = {"default_root_dir": tmp_path, "accelerator": "cpu", "plugins": False}
            with Run(tiny(), callbacks=[Raises()], **where) as run:
                for _ in run.epochs():
                    for _ in run.batches(loader()):
                        pass

    gc.disable()
    try:
        with pytest.raises(error):
            go()
        assert multiprocessing.active_children() == []
    finally:
        gc.enable()
