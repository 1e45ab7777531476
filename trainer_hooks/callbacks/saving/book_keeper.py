"""BookKeeper: the books of a saver, of which some entries may not be durable yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainer_hooks.callbacks.saving.checkpoint import Checkpoint
from trainer_hooks.callbacks.saving.ranking import Books
from trainer_hooks.checkpoint import exists

if TYPE_CHECKING:
    from torch import Tensor

    from trainer_hooks.callbacks.saving.saved_files import Plan
    from trainer_hooks.checkpoint import BackgroundSave
    from trainer_hooks.context import Trainer

__all__ = ["BookKeeper", "UnderWay"]


@dataclass(frozen=True, slots=True)
class UnderWay:
    """A save in the background, and the books before it."""

    save: BackgroundSave
    before: Books


class BookKeeper(Checkpoint):
    """Keep books on checkpoints, and show of them what is durable.

    What is still being written is part of what is saved, and of what the next save is decided on;
    `best_model_path` and its kin name it once it is durable. If it fails, the books go back.

    Args:
        mode: `"min"` or `"max"`: which scores are better.
    """

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self._entries = Books.opened(mode)
        self._under_way: UnderWay | None = None
        self._when_durable: dict[str, Plan] = {}

    @property
    def _books(self) -> Books:
        """The books with what is under way, and without what failed."""
        self._undo_failed()
        return self._entries

    @_books.setter
    def _books(self, books: Books) -> None:
        self._entries = books

    @property
    def _durable(self) -> Books:
        """The books of what is durable."""
        books, under_way = self._books, self._under_way
        return books if under_way is None or under_way.save.is_durable else under_way.before

    @property
    def best_model_path(self) -> str:
        """The best checkpoint, without a monitor the newest; empty if there is none."""
        return self._durable.best_model_path

    @property
    def best_model_score(self) -> Tensor | None:
        """The monitored value of the best checkpoint."""
        return self._durable.best_model_score

    @property
    def best_k_models(self) -> dict[str, Tensor]:
        """The best checkpoints and their monitored values."""
        return dict(self._durable.best_k_models)

    @property
    def kth_best_model_path(self) -> str:
        """The worst of the best checkpoints, once there are as many as are kept."""
        return self._durable.kth_best_model_path

    @property
    def kth_value(self) -> Tensor:
        """The monitored value of the worst of the best; infinite until there are as many."""
        return self._durable.kth_value

    @property
    def last_model_path(self) -> str:
        """The newest checkpoint that `save_last` wrote; empty if there is none."""
        return self._durable.last_model_path

    def file_exists(self, filepath: str, trainer: Trainer) -> bool:
        """Return whether there is a file at a path or address."""
        return exists(filepath)

    @property
    def current_score(self) -> Tensor | None:
        """The monitored value that was looked at last, saved or not."""
        return self._books.current_score

    def _undo_failed(self) -> None:
        """Take a save in the background that failed out of the books."""
        under_way = self._under_way
        if under_way is not None and under_way.save.has_failed:
            self._under_way, self._entries = None, under_way.before
            self._when_durable.pop(under_way.save.paths[-1], None)
