"""UnrankedSaver: a folder of checkpoints that no metric ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.callbacks.saving import shown
from trainer_hooks.callbacks.saving.checkpoint import Checkpoint
from trainer_hooks.callbacks.saving.folder import Folder
from trainer_hooks.callbacks.saving.ledger import Ledger
from trainer_hooks.callbacks.saving.names import FileNames
from trainer_hooks.callbacks.saving.saved_files import remove_or_warn
from trainer_hooks.callbacks.saving.writer import Writer
from trainer_hooks.checkpoint import exists

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["UnrankedSaver"]


class UnrankedSaver(Checkpoint):
    """Base of savers that keep the newest checkpoints: a subclass says when, and under what name.

    `ModelCheckpoint` holds the same parts and stands beside it.

    Args:
        dirpath: the folder, absolute; None for the default, which `setup` resolves.
        filename: the template of their names, or None for `{epoch}-{step}`.
        save_weights_only: leave out what only a resume needs.
        async_save: whether files are written in the background, while the training goes on.

    State: the books, the folder that they belong to, and what a save that is under way replaces.
    """

    CHECKPOINT_JOIN_CHAR: str = "-"
    CHECKPOINT_EQUALS_CHAR: str = "="
    FILE_EXTENSION: str = ".ckpt"
    STARTING_VERSION: int = 1

    best_model_path = shown.best_model_path
    best_model_score = shown.best_model_score
    best_k_models = shown.best_k_models
    kth_best_model_path = shown.kth_best_model_path
    kth_value = shown.kth_value
    last_model_path = shown.last_model_path
    current_score = shown.current_score

    def __init__(
        self,
        dirpath: str | None,
        filename: str | None = None,
        save_weights_only: bool = False,
        async_save: bool = False,
    ) -> None:
        self.mode = "max"
        self.dirpath = dirpath
        self.filename = filename
        self.save_weights_only = save_weights_only
        self.auto_insert_metric_name = False
        self.enable_version_counter = False
        self.async_save = async_save
        self.ledger = Ledger(self.mode)
        self._folder = Folder(self)
        self._names = FileNames(self)
        self._writer = Writer(self)

    def state_dict(self) -> dict[str, Any]:
        """Return the books, the folder, and what the save under way replaces."""
        return self._writer.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take back what `state_dict` returned; of another folder's books only the newest path."""
        self._writer.load_state_dict(state_dict)

    def forget(self) -> None:
        """Forget an earlier training. Its files stay."""
        self._writer.forget()

    def setup(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Resolve the default folder."""
        self._folder.resolve(trainer)
        self._writer.is_to_save = stage == "fit"

    @property
    def has_named_folder(self) -> bool:
        """Whether it was given a folder."""
        return self._folder.is_given

    def folders(self) -> list[str]:
        """Return its folder, once it is known."""
        return [] if self.dirpath is None else [self.dirpath]

    def candidates(self, trainer: Trainer) -> list[str]:
        """Return the checkpoints in its folder; in one that is new, those of earlier runs."""
        return self._folder.files(trainer)

    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Open new books for a new training; go on with an earlier one's where it was cut."""
        if trainer.progress.is_fresh:
            self.forget()
        else:
            self._writer.tidy(trainer)

    def on_checkpoint_saved(self, trainer: Trainer, module: Module, path: str) -> None:
        """Link to what is now durable, and remove what it replaces."""
        self._writer.settle(trainer, str(path))

    def format_checkpoint_name(
        self, metrics: Mapping[str, Any], filename: str | None = None, ver: int | None = None
    ) -> str:
        """Return the path of a checkpoint with these metrics, inside `dirpath` if it is known."""
        return self._names.path(metrics, filename, ver)

    def file_exists(self, filepath: str, trainer: Trainer) -> bool:
        """Return whether there is a file at a path or address."""
        return exists(filepath)

    def remove_checkpoint(self, trainer: Trainer, path: str) -> None:
        """Remove a file. Override it to move old checkpoints elsewhere instead."""
        remove_or_warn(path)
