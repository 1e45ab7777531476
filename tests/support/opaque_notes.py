"""A value that no checkpoint can hold as plain data, and a run that saves it."""

from __future__ import annotations

from trainer_hooks import Trainer
from trainer_hooks.testing import TinyModule

OFF = {
    "accelerator": "cpu", "logger": False, "enable_checkpointing": False, "plugins": False,
    "enable_progress_bar": False, "enable_model_summary": False, "max_epochs": 1,
    "enable_run_manifest": False,
}  # fmt: skip


class Note:
    """An object that only code can rebuild; it is counted how often that was done."""

    opened = 0

    def __init__(self, text):
        self.text = text

    def __setstate__(self, state):
        type(self).opened += 1
        vars(self).update(state)


def saved(callback, path):
    """Fit with a callback, save a checkpoint, and return its path."""
    trainer = Trainer(callbacks=[callback], **OFF)
    trainer.fit(TinyModule())
    trainer.save_checkpoint(path)
    return path
