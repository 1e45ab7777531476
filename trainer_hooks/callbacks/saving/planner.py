"""Planner: what a moment is worth: a place among the best, the last checkpoint, or nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from trainer_hooks._log import log
from trainer_hooks.callbacks.saving.saved_files import Plan
from trainer_hooks.callbacks.saving.saver import Saver

if TYPE_CHECKING:
    from trainer_hooks.callbacks.saving.books import Books
    from trainer_hooks.callbacks.saving.names import FileNames
    from trainer_hooks.callbacks.watched_metric import WatchedMetric
    from trainer_hooks.context import Trainer

__all__ = ["Planner", "RankingSaver"]


class RankingSaver(Saver, Protocol):
    """A saver that keeps the best checkpoints by a metric, and the last one beside them."""

    CHECKPOINT_NAME_LAST: str

    monitor: str | None
    save_top_k: int
    save_last: Any
    verbose: bool


class Planner:
    """Decide of a checkpoint whether it is among the best, and which ones it replaces.

    Args:
        saver: whose checkpoints they are.
        names: of its files.
        watched: the metric that ranks.

    Attributes:
        watched: as given.
    """

    def __init__(self, saver: RankingSaver, names: FileNames, watched: WatchedMetric) -> None:
        self._saver, self._names, self.watched = saver, names, watched

    def planned(self, trainer: Trainer, metrics: dict[str, Any], books: Books) -> Plan:
        """Enter this moment into the books if it is among the best; return what to write."""
        top, replaced = self._enter_best(trainer, metrics, books)
        return self.with_last(top, replaced, metrics, books)

    def with_last(
        self, top: str | None, replaced: list[str], metrics: dict[str, Any], books: Books
    ) -> Plan:
        """Return what to write: `top`, if there is one, and the last checkpoint if it moves."""
        files = [] if top is None else [top]
        link = None
        if self._is_last_wanted(top, books):
            previous, name = books.last_model_path, self._saver.CHECKPOINT_NAME_LAST
            last = books.last_model_path = self._names.free(metrics, name, reusable=(previous,))
            replaced = [*replaced, previous]
            if self._saver.save_last == "link" and top is not None:
                link = last
            else:
                files.append(last)
        return Plan(tuple(files), tuple(filter(None, replaced)), link)

    def tell(self, trainer: Trainer, message: str) -> None:
        """Log what was decided, if that is wanted."""
        if self._saver.verbose:
            log.info("epoch %d, step %d: %s", trainer.current_epoch, trainer.global_step, message)

    def _is_last_wanted(self, top: str | None, books: Books) -> bool:
        """Return whether the last checkpoint moves: each time, a link only with what it names."""
        if self._saver.save_last == "link":
            return top is not None or not books.best_model_path
        return bool(self._saver.save_last)

    def _enter_best(
        self, trainer: Trainer, metrics: dict[str, Any], books: Books
    ) -> tuple[str | None, list[str]]:
        """Enter this moment among the best; return its path, or None, and the paths it replaces."""
        k, monitor = self._saver.save_top_k, self._saver.monitor
        if k == 0:
            return None, []
        if monitor is None:
            replaced = [books.best_model_path] if k == 1 else []
            books.best_model_path = path = self._names.free(metrics, reusable=replaced)
            self.tell(trainer, f"saving {path!r}")
            return path, replaced
        score = self.watched.score(trainer)
        if score is None:
            return None, []
        books.current_score = score
        if not books.admits(score, k):
            self.tell(trainer, f"{monitor} {score:.5g} is not among the best {k}")
            return None, []
        replaced = books.outranked(k)
        path = self._names.free(metrics, reusable=replaced)
        books.add(path, score, k)
        self.tell(trainer, f"{monitor} {score:.5g} is among the best; saving {path!r}")
        return path, replaced
