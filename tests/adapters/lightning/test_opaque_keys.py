"""Keys that a callback puts into the checkpoint itself, and that no checkpoint can hold."""

from __future__ import annotations

import pytest

pytest.importorskip("pytorch_lightning")

import pytorch_lightning as lightning
import torch

from trainer_hooks import Trainer
from trainer_hooks.adapters import keep_opaque
from trainer_hooks.errors import CheckpointStateError
from trainer_hooks.testing import TinyModule

OFF = {
    "accelerator": "cpu", "logger": False, "enable_checkpointing": False, "plugins": False,
    "enable_progress_bar": False, "enable_model_summary": False, "max_epochs": 1,
    "enable_run_manifest": False,
}  # fmt: skip


class Note:
    """Only code can rebuild it; it is counted how often that was done."""

    opened = 0

    def __init__(self, text):
        self.text = text

    def __setstate__(self, state):
        type(self).opened += 1
        vars(self).update(state)


def saved(callback, path):
    trainer = Trainer(callbacks=[callback], **OFF)
    trainer.fit(TinyModule())
    trainer.save_checkpoint(path)
    return path


def test_a_key_of_the_checkpoint_itself(tmp_path) -> None:
    """What a callback of Lightning puts beside the states is kept, too, for it and no other."""

    class Adds(lightning.Callback):
        def __init__(self, text: str) -> None:
            self.note = Note(text)

        def on_save_checkpoint(self, trainer, pl_module, checkpoint):
            checkpoint["note"] = self.note
            checkpoint["plain"] = 5

        def on_load_checkpoint(self, trainer, pl_module, checkpoint):
            assert checkpoint["plain"] == 5
            self.note = checkpoint["note"]

    with pytest.raises(CheckpointStateError, match=r"checkpoint\['note'\] holds .*keep_opaque"):
        saved(Adds("first"), tmp_path / "x.ckpt")
    path = saved(keep_opaque(Adds("first"), "note"), tmp_path / "x.ckpt")
    assert "note" not in torch.load(path, weights_only=True)
    with pytest.raises(CheckpointStateError, match=r"'note'.*runs whatever code.*keep_opaque"):
        Trainer(callbacks=[Adds("second")], **OFF).fit(TinyModule(), ckpt_path=path)
    assert Note.opened == 0
    guest = Adds("second")
    callback = keep_opaque(guest, "note")
    Trainer(callbacks=[callback], **{**OFF, "max_epochs": 2}).fit(TinyModule(), ckpt_path=path)
    assert (guest.note.text, Note.opened) == ("first", 1)
