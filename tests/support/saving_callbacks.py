"""A callback that saves, for tests that resume."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks import Callback

if TYPE_CHECKING:
    from pathlib import Path


class SaveEachStep(Callback):
    """Saves `N.ckpt` after optimizer step N.

    Args:
        folder: the folder of the files.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_batch_checkpoint(self, trainer, module) -> None:
        """Save after a batch."""
        trainer.save_checkpoint(self.folder / f"{trainer.global_step}.ckpt")
