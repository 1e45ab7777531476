"""UnrankedSaver: the base of savers that keep the newest checkpoints, without a metric."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.callbacks.saving.checkpoint import Checkpoint
from trainer_hooks.callbacks.saving.checkpoint_folder import remove_or_warn
from trainer_hooks.callbacks.saving.saver_parts import (
    CheckpointFolder,
    FileNames,
    RankingAttributes,
    SaveTracker,
)
from trainer_hooks.checkpoint.paths import exists

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module

__all__ = ["UnrankedSaver"]


class UnrankedSaver(Checkpoint):
    """Base of savers that keep the newest checkpoints: a subclass says when, and under which name.

    `ModelCheckpoint` is built of the same parts, but is no subclass.

    Args:
        dirpath: the folder, absolute; None for the default, which `setup` resolves.
        filename: the template of the file names, or None for `{epoch}-{step}`.
        save_weights_only: leave out everything that only a resume needs.
        async_save: whether files are written in the background during the training.

    State: the ranking, its folder, and the files that a pending save replaces.
    """

    CHECKPOINT_JOIN_CHAR: str = "-"
    CHECKPOINT_EQUALS_CHAR: str = "="
    FILE_EXTENSION: str = ".ckpt"
    STARTING_VERSION: int = 1

    best_model_path = RankingAttributes.best_model_path
    best_model_score = RankingAttributes.best_model_score
    best_k_models = RankingAttributes.best_k_models
    kth_best_model_path = RankingAttributes.kth_best_model_path
    kth_value = RankingAttributes.kth_value
    last_model_path = RankingAttributes.last_model_path
    current_score = RankingAttributes.current_score

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
        self.tracker = SaveTracker(self)
        self._folder = CheckpointFolder(self)
        self._names = FileNames(self)

    def state_dict(self) -> dict[str, Any]:
        """Return the ranking, its folder, and the files that a pending save replaces."""
        return self.tracker.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state; of a ranking in another folder only the newest path."""
        self.tracker.load_state_dict(state_dict)

    def forget(self) -> None:
        """Reset for a new training. Files of an earlier one stay."""
        self.tracker.reset()

    def setup(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Resolve the default folder."""
        self._folder.resolve(trainer)
        self.tracker.is_to_save = stage == "fit"

    @property
    def has_named_folder(self) -> bool:
        """Whether the user passed a folder."""
        return self._folder.is_given

    def folders(self) -> list[str]:
        """Return its folder, once it is resolved."""
        return [] if self.dirpath is None else [self.dirpath]

    def candidates(self, trainer: Trainer) -> list[str]:
        """Return the checkpoints in its folder; in a new default folder those of earlier runs."""
        return self._folder.files(trainer)

    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Reset for a new training; in a resumed one delete files that a killed process left."""
        if trainer.progress.is_fresh:
            self.forget()
        else:
            self.tracker.delete_left_over(trainer)

    def on_checkpoint_saved(self, trainer: Trainer, module: Module, path: str) -> None:
        """Link to the durable file, and delete the files that it replaces."""
        self.tracker.complete(trainer, str(path))

    def format_checkpoint_name(
        self, metrics: Mapping[str, Any], filename: str | None = None, ver: int | None = None
    ) -> str:
        """Return the path of a checkpoint with these metrics, inside `dirpath` if it is known."""
        return self._names.path(metrics, filename, ver)

    def file_exists(self, filepath: str, trainer: Trainer) -> bool:
        """Return whether there is a file at a path or address."""
        return exists(filepath)

    def remove_checkpoint(self, trainer: Trainer, path: str) -> None:
        """Delete a file. Override it to move old checkpoints elsewhere instead."""
        remove_or_warn(path)
