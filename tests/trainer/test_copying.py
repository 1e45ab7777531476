"""What becomes of copies and pickles of a trainer, and of what refers to one."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

from trainer_hooks import Callback, Trainer

RULE = r"a Trainer cannot be copied or pickled: .* save_checkpoint"


class Keeps(Callback):
    """Keeps the trainer that it takes part in, as many callbacks do."""

    def __init__(self) -> None:
        self.trainer: Trainer | None = None
        self.counts = [0]

    def setup(self, trainer, module, stage):
        self.trainer = trainer

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.counts[0] += 1

    def state_dict(self):
        return {"counts": self.counts}

    def load_state_dict(self, state_dict):
        self.counts = state_dict["counts"]


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, pickle.dumps], ids=["copy", "deepcopy", "pickle"]
)
def test_a_trainer_is_not_copied(copied, bare, Tiny, batches) -> None:
    """One sentence says why, and what to do instead, before a run and after one."""
    trainer = bare()
    with pytest.raises(TypeError, match=RULE):
        copied(trainer)
    trainer.fit(Tiny(), batches(1))
    with pytest.raises(TypeError, match=RULE):
        copied(trainer)


def test_a_copy_of_a_callback_refers_to_the_same_trainer(bare, Tiny, batches) -> None:
    """A callback that keeps the trainer can be copied, and everything else of it is its own."""
    keeps = Keeps()
    trainer = bare(keeps)
    trainer.fit(Tiny(), batches(2))
    made = copy.deepcopy(keeps)
    assert made.trainer is trainer
    assert (made.counts, made.counts is keeps.counts) == ([2], False)
    with pytest.raises(TypeError, match=RULE):
        pickle.dumps(keeps)


def test_the_state_of_a_callback_that_keeps_the_trainer_is_saved(
    bare, Tiny, batches, tmp_path
) -> None:
    """Its state is its own affair, in a file that is written at once and in one of a thread."""
    trainer = bare(Keeps())
    trainer.fit(Tiny(), batches(2))
    trainer.save_checkpoint(tmp_path / "at once.ckpt")
    trainer.save_in_background(tmp_path / "later.ckpt")
    trainer.finish_saves()
    for path in tmp_path.glob("*.ckpt"):
        saved = torch.load(path, weights_only=True)["callbacks"]["Keeps"]
        assert saved == {"counts": [2]}


def test_rehearsals_and_trials_are_run_by_twins(bare, Tiny, batches) -> None:
    """A trainer still makes others like itself, of its own class and with its attributes."""

    class Mine(Trainer):
        mark = "none"

    trainer = Mine(logger=False, plugins=False, enable_checkpointing=False, accelerator="cpu")
    trainer.mark = "kept"
    twin = trainer.rehearsal()
    assert (type(twin), twin.mark, twin is trainer) == (Mine, "kept", False)
