"""Keys that a callback puts into the checkpoint itself, and that no checkpoint can hold."""

from __future__ import annotations

import pytest

pytest.importorskip("pytorch_lightning")

import pytorch_lightning as lightning
import torch
from opaque_notes import OFF, Note, saved

from trainer_hooks import Trainer
from trainer_hooks.adapters import keep_opaque
from trainer_hooks.errors import CheckpointStateError
from trainer_hooks.testing import TinyModule

pytestmark = pytest.mark.slow  # the import of the framework alone is


def test_a_key_of_the_checkpoint_itself(tmp_path) -> None:
    """What a callback of Lightning puts beside the states is kept, too, for it and no other."""
    Note.opened = 0  # other tests count, too

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
