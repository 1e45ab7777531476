"""Saves: one save, from the decision to the files: in turn, on request, before leaving."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from trainer_hooks.callbacks.monitoring import decided_by_first, is_training
from trainer_hooks.callbacks.saving.planner import RankingSaver
from trainer_hooks.callbacks.saving.saved_files import Plan
from trainer_hooks.callbacks.watched_metric import nameable_metrics

if TYPE_CHECKING:
    from trainer_hooks.callbacks.saving.books import Books
    from trainer_hooks.callbacks.saving.names import FileNames
    from trainer_hooks.callbacks.saving.planner import Planner
    from trainer_hooks.callbacks.saving.writer import Writer
    from trainer_hooks.context import Trainer

__all__ = ["Saves"]


class _Saver(RankingSaver, Protocol):
    CHECKPOINT_NAME_EXCEPTION: str
    CHECKPOINT_NAME_PREEMPTED: str

    last_exception_path: str


class Saves:
    """Save, in a fit whose results count: ask for a plan, and have it carried out.

    Args:
        saver: whose checkpoints they are.
        names: of its files.
        planner: says what is written.
        writer: writes it.
    """

    def __init__(self, saver: _Saver, names: FileNames, planner: Planner, writer: Writer) -> None:
        self._saver, self._names = saver, names
        self._planner, self._writer = planner, writer

    def save_in_turn(self, trainer: Trainer, is_due: bool) -> None:
        """Save what this moment is worth: a place among the best, the last, or nothing.

        Args:
            trainer: whose moment it is.
            is_due: whether it may be one of the best; if not, the last alone moves.
        """
        saver = self._saver
        if not (is_due or saver.save_last) or not is_training(trainer):
            return
        plan, books = decided_by_first(trainer, lambda: self._turn(trainer, is_due))
        if not plan.files:
            saver.ledger.books = books
            return
        books.saved_step = trainer.global_step
        self._writer.write(trainer, plan, books)

    def save_on_request(self, trainer: Trainer) -> None:
        """Save a file that is named as the others are, and stays; the schedule stays as it is.

        It is not ranked, and no later one replaces it. It moves `save_last`.
        """
        if not is_training(trainer):
            return
        plan, books = decided_by_first(trainer, lambda: self._request(trainer))
        self._writer.write(trainer, plan, books)

    def save_for_now(self, trainer: Trainer) -> bool:
        """Save the last, or without one a file that the next save replaces; return whether."""
        if not is_training(trainer):
            return False
        plan, books = decided_by_first(trainer, lambda: self._leaving(trainer))
        self._writer.write(trainer, plan, books)
        return True

    def save_on_exception(self, trainer: Trainer) -> None:
        """Save where the training stands; the books do not name the file."""
        if not is_training(trainer):
            return
        saver = self._saver
        path = self._names.free(nameable_metrics(trainer), saver.CHECKPOINT_NAME_EXCEPTION)
        trainer.save_checkpoint(path, saver.save_weights_only)
        saver.last_exception_path = path

    def _turn(self, trainer: Trainer, is_due: bool) -> tuple[Plan, Books]:
        """Return what is written in turn, and the books afterwards."""
        metrics, books = nameable_metrics(trainer), self._saver.ledger.books.copy()
        books.considered_at = trainer.progress.batches_completed
        if is_due:
            return self._planner.planned(trainer, metrics, books), books
        return self._planner.with_last(None, [], metrics, books), books

    def _request(self, trainer: Trainer) -> tuple[Plan, Books]:
        """Return what is written on request, and the books afterwards."""
        metrics, books = nameable_metrics(trainer), self._saver.ledger.books.copy()
        # never over another file, which may be among the best
        path = self._names.free(metrics, is_versioned=True)
        self._planner.tell(trainer, f"saving {path!r} as requested")
        return self._planner.with_last(path, [], metrics, books), books

    def _leaving(self, trainer: Trainer) -> tuple[Plan, Books]:
        """Return what is written before the process ends, and the books afterwards."""
        saver, metrics = self._saver, nameable_metrics(trainer)
        books = saver.ledger.books.copy()
        if saver.save_last is True and not saver.save_weights_only:
            return self._planner.with_last(None, [], metrics, books), books
        name = saver.CHECKPOINT_NAME_PREEMPTED
        return Plan.for_now(self._names.free(metrics, name, is_versioned=True)), books
