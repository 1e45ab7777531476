"""OnExceptionCheckpoint: save a checkpoint when an exception ends a fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks._names import ours
from trainer_hooks._options import answers_keywords
from trainer_hooks.callbacks.saving.checkpoint import Checkpoint
from trainer_hooks.callbacks.saving.saver_options import check_dirpath
from trainer_hooks.checkpoint.paths import exists, files_in, join_path, remove
from trainer_hooks.errors import OptionError
from trainer_hooks.hooks.spec import keeps_optimizers

if TYPE_CHECKING:
    import os

    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module

_WHERE = "OnExceptionCheckpoint"


class OnExceptionCheckpoint(Checkpoint):
    """Save a checkpoint when an exception ends a fit, Ctrl-C included.

    `trainer.fit(..., ckpt_path="auto")` resumes from it if it exists, and starts anew if not: one
    line of code for the first run and for each restart. A fit that resumed from it by `"auto"` or
    `"last"` and completed deletes it as outdated. Nothing else does: neither `test()` nor a fit
    that did not resume from it.

    Nothing is saved if the fit fails before its first epoch begins, or before the checkpoint that
    it resumes from is restored.

    A checkpoint saved inside a batch, or after an error in a hook that ends an epoch, is not exact
    to the bit when it is resumed, and a warning says so then. A scheduler's signal waits for the
    end of the batch, so its checkpoint is exact.

    Args:
        dirpath: the folder, created at the first save.
        filename: the name, without the suffix `.ckpt`.

    Attributes:
        dirpath: the folder, absolute.
        filename: the name.
        ckpt_path: the whole path.

    State: none.

    Raises:
        OptionError: an argument is outside its rule.

    Example::

        trainer = Trainer(max_epochs=2, callbacks=[OnExceptionCheckpoint("checkpoints")])
        trainer.fit(module, train_loader, ckpt_path="auto")
    """

    FILE_EXTENSION: str = ".ckpt"

    @answers_keywords
    def __init__(self, dirpath: str | os.PathLike[str], filename: str = "on_exception") -> None:
        folder = check_dirpath(dirpath, _WHERE)
        if folder is None:
            raise OptionError(
                f"dirpath None of {_WHERE}: it must be the path of a folder. Pass such a path."
            )
        if not isinstance(filename, str) or not filename or "/" in filename:
            raise OptionError(
                f"filename {filename!r} of {_WHERE}: it must be the name of a file in dirpath, "
                "without a folder. Pass such a name."
            )
        self.dirpath: str = folder
        self.filename = filename
        self._is_mine = False

    @property
    def state_key(self) -> str:
        """The class name with the path, which differs between two instances."""
        return self._generate_state_key(ckpt_path=self.ckpt_path)

    @property
    def ckpt_path(self) -> str:
        """The path that it saves to."""
        return join_path(self.dirpath, self.filename + self.FILE_EXTENSION)

    def folders(self) -> list[str]:
        """Return its folder."""
        return [self.dirpath]

    def candidates(self, trainer: Trainer) -> list[str]:
        """Return the file, if there is one."""
        return [f for f in files_in(self.dirpath, self.FILE_EXTENSION, 0) if f == self.ckpt_path]

    def save_now(self, trainer: Trainer, module: Module) -> None:
        """Save on request, or because the process is told to end."""
        if not trainer.fast_dev_run:
            trainer.save_checkpoint(self.ckpt_path)
            self._is_mine = True

    @keeps_optimizers
    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Record whether this fit resumes from the file."""
        # only where the trainer chose the file: one that the user named is not ours to delete
        came_from_it = trainer.ckpt_path == self.ckpt_path and trainer.named_ckpt_path is None
        # or the file is of this trainer's previous fit, which continues in memory
        self._is_mine = came_from_it or (self._is_mine and not trainer.progress.is_new_training)

    def on_exception(self, trainer: Trainer, module: Module, exception: BaseException) -> None:
        """Save, if the exception ended a fit that has begun."""
        if trainer.state.fn != "fit" or not trainer.optimizers:
            return
        progress = trainer.progress
        # a run that has begun no epoch begins as well without a file, with its sanity check then
        has_begun = not (progress.is_untrained and progress.stage == "between")
        # this module would replace the training that it has not taken over yet
        is_restored = trainer.ckpt_path is None or progress.is_restored
        if has_begun and is_restored:
            ours(self).save_now(trainer, module)

    def on_fit_end(self, trainer: Trainer, module: Module) -> None:
        """Delete the file that this fit resumed from, as it is outdated now."""
        # a fit that a signal stopped has its end hooks called, too, but the file is still needed
        has_gone_through = trainer.state.status == "running"
        if has_gone_through and self._is_mine and trainer.is_global_zero:
            self._is_mine = False
            if exists(self.ckpt_path):
                remove(self.ckpt_path)
