"""Saver: what the parts of a saver see of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainer_hooks.callbacks.saving.ledger import Ledger
    from trainer_hooks.context import Trainer

__all__ = ["Saver"]


@runtime_checkable
class Saver(Protocol):
    """A callback that keeps books on the checkpoints in one folder.

    It is no class to derive from. A saver holds its parts, and a part looks up the options of its
    saver when it needs them: so one that is changed later counts, and a method that a subclass
    overrides is the one that is called.
    """

    CHECKPOINT_JOIN_CHAR: str = "-"
    CHECKPOINT_EQUALS_CHAR: str = "="
    FILE_EXTENSION: str = ".ckpt"
    STARTING_VERSION: int = 1

    mode: str
    dirpath: str | None
    filename: str | None
    save_weights_only: bool
    auto_insert_metric_name: bool
    enable_version_counter: bool
    async_save: bool
    ledger: Ledger

    @property
    def best_model_path(self) -> str:
        """The best checkpoint, without a monitor the newest; empty if there is none."""

    def format_checkpoint_name(
        self, metrics: Mapping[str, Any], filename: str | None = None, ver: int | None = None
    ) -> str:
        """Return the path of a checkpoint with these metrics."""

    def remove_checkpoint(self, trainer: Trainer, path: str) -> None:
        """Remove a file."""
