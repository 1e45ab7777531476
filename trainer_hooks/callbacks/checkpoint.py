"""Checkpoint: what every callback that saves checkpoints derives from."""

from __future__ import annotations

from typing import ClassVar

from trainer_hooks.callback import Callback
from trainer_hooks.hooks.order import Band

__all__ = ["Checkpoint"]


class Checkpoint(Callback):
    """Mark a callback as one that saves checkpoints.

    The trainer finds it under `trainer.checkpoint_callbacks`, adds no checkpointing of its own if
    there is one, and gives it its turn last, so that what it saves holds what the others did.

    State: none of its own.

    Example::

        class SaveAtTheEnd(Checkpoint):
            def on_train_end(self, trainer, module):
                trainer.save_checkpoint("final.ckpt")
    """

    band: ClassVar[Band] = Band.SAVE
