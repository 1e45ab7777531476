"""Two runs that save into one folder at the same moment: each has files of its own."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from trainer_hooks import Callback
from trainer_hooks.callbacks import ModelCheckpoint
from trainer_hooks.errors import CheckpointStateError


class Between(Callback):
    """Does something once a save has chosen its files' names, and has not written them yet."""

    def __init__(self, act) -> None:
        self.act = act

    def on_save_checkpoint(self, trainer, module, checkpoint):
        act, self.act = self.act, lambda: None
        act()


def saver(folder: Path, **options) -> ModelCheckpoint:
    return ModelCheckpoint(folder, **{"save_last": True, "save_top_k": 0, **options})


@pytest.mark.parametrize(
    "options",
    [{}, {"async_save": True}, {"save_last": "link", "save_top_k": 1}, {"save_top_k": 1}],
    ids=["last", "in the background", "link", "best and last"],
)
def test_two_runs_that_begin_at_one_moment(options, fit, tmp_path) -> None:
    """The second finds the names of the first taken before there is a file; neither loses one."""
    folder = tmp_path / "saved"
    first, second = saver(folder, **options), saver(folder, **options)
    fit(first, Between(lambda: fit(second)))
    assert Path(first.last_model_path).name == "last.ckpt"
    assert Path(second.last_model_path).name == "last-v1.ckpt"
    mine = {first.last_model_path, first.best_model_path} - {""}
    others = {second.last_model_path, second.best_model_path} - {""}
    assert mine.isdisjoint(others)
    assert {str(path) for path in folder.iterdir()} == mine | others


def test_a_name_that_was_not_used_is_free_again(fit, tmp_path) -> None:
    """A save that is refused keeps no name from the next one, and leaves nothing behind."""

    class Foreign(Callback):
        batches = 0

        def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
            self.batches += 1

        def state_dict(self):
            return {"value": object() if self.batches else 0}

    folder = tmp_path / "saved"
    with pytest.raises(CheckpointStateError):
        fit(saver(folder), Foreign())
    assert list(folder.iterdir()) == []
    later = saver(folder)
    fit(later)
    assert Path(later.last_model_path).name == "last.ckpt"


def test_a_copy_of_a_saver_keeps_no_name(fit, tmp_path) -> None:
    """A saver can be copied at any moment; what it keeps for itself stays its own."""
    folder, copies = tmp_path / "saved", []
    mine = saver(folder)
    fit(mine, Between(lambda: copies.append(copy.deepcopy(mine))))
    [copied] = copies
    copied.forget()
    assert Path(mine.last_model_path).exists()
    assert sorted(path.name for path in folder.iterdir()) == ["last.ckpt"]
