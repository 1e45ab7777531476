"""Checkpoint: the base class of all callbacks that save checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from trainer_hooks._log import warn
from trainer_hooks._names import class_attribute, ours
from trainer_hooks.callback import Callback
from trainer_hooks.errors import TrainerHooksWarning
from trainer_hooks.hooks.band import Band

if TYPE_CHECKING:
    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module


class Checkpoint(Callback):
    """Mark a callback as one that saves checkpoints.

    The trainer lists it under `trainer.checkpoint_callbacks`, adds no checkpointing of its own if
    there is one, and calls it last, so that a checkpoint holds the effects of all other callbacks.

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
        """Whether the user named its folder, so that all files in it are this run's.

        Default folders lie beside those of other runs; `ckpt_path="auto"` takes only files of this
        run from them.
        """
        return True

    @property
    def notifies_loggers(self) -> bool:
        """Whether it calls the loggers' `after_save_checkpoint` itself; else the trainer does."""
        return False

    def folders(self) -> list[str]:
        """Return the folders that it saves to, from `setup` on; the base class returns none.

        A fit checks that it can write to them before it begins.
        """
        return []

    def candidates(self, trainer: Trainer) -> list[str]:
        """Return the files that it may have saved, now or in an earlier process, in any order.

        `ckpt_path="last"`, `"best"` and `"auto"` choose among them. The base class returns none;
        override it to have the callback's checkpoints found.
        """
        return []

    def save_now(self, trainer: Trainer, module: Module) -> None:
        """Save a checkpoint because `trainer.request_checkpoint()` was called; override it.

        It is called in a saver's slot, after the slot's hook. The base class only warns.
        """
        warn(
            f"trainer.request_checkpoint() was called, but {type(self).__name__} (state_key "
            f"{self.state_key!r}) has no save_now(trainer, module), so it saves nothing: define "
            "one that calls trainer.save_checkpoint(path).",
            TrainerHooksWarning,
        )

    def follow_validations(self, trainer: Trainer) -> None:
        """Learn when validations are due, after one in a loop by `Run`; the base class need not.

        Only there it is not known as the training begins.
        """

    def save_before_leaving(self, trainer: Trainer, module: Module) -> bool:
        """Save because the process is told to end (SIGTERM, SIGUSR1); return whether it did.

        It is called after the current batch, for one callback after the other until one saves. The
        base class calls `save_now` where that is overridden.
        """
        # the base class's `save_now` would only warn, and the process end without a checkpoint
        if class_attribute(type(self), "save_now") is Checkpoint.save_now:
            return False
        ours(self).save_now(trainer, module)
        return True
