"""Checkpoint: what every callback that saves checkpoints derives from."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from trainer_hooks._log import warn
from trainer_hooks.callback import Callback
from trainer_hooks.errors import TrainerHooksWarning
from trainer_hooks.hooks import Band

if TYPE_CHECKING:
    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

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

            def save_now(self, trainer, module):
                trainer.save_checkpoint("requested.ckpt")
    """

    band: ClassVar[Band] = Band.SAVE

    @property
    def has_named_folder(self) -> bool:
        """Whether the user named the folder that it saves to, so that all in it is this run's.

        The folders that a trainer chooses lie beside those of other runs; `ckpt_path="auto"` takes
        of them only what this run saved.
        """
        return True

    def folders(self) -> list[str]:
        """Return the folders that it saves to, from `setup` on.

        A fit tries to write to them before it begins. This one names none; override it.
        """
        return []

    def candidates(self, trainer: Trainer) -> list[str]:
        """Return files that it may have saved, now or in an earlier process, in any order.

        `ckpt_path="last"`, `"best"` and `"auto"` choose among them. This one names none; override
        it to have its checkpoints found.
        """
        return []

    def save_now(self, trainer: Trainer, module: Module) -> None:
        """Save a checkpoint because `trainer.request_checkpoint()` was called; override it.

        It is called in a saver's slot, after the slot's hook. This one saves nothing, and says so.
        """
        warn(
            f"trainer.request_checkpoint() was called, but {type(self).__name__} (state_key "
            f"{self.state_key!r}) has no save_now(trainer, module), so it saves nothing: define "
            "one that calls trainer.save_checkpoint(path).",
            TrainerHooksWarning,
        )

    def save_before_leaving(self, trainer: Trainer, module: Module) -> bool:
        """Save because the process is told to end (SIGTERM, SIGUSR1); return whether it did.

        It is called after the batch in work, of one callback after the other until one saves. This
        one calls `save_now` where that is overridden.
        """
        if type(self).save_now is Checkpoint.save_now:
            return False
        self.save_now(trainer, module)
        return True
