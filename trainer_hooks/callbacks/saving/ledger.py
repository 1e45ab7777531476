"""Ledger: the books of a saver, of which some entries may not be durable yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainer_hooks.callbacks.saving.books import Books
from trainer_hooks.callbacks.saving.claims import Claims

if TYPE_CHECKING:
    from trainer_hooks.callbacks.saving.saved_files import Plan
    from trainer_hooks.checkpoint import BackgroundSave

__all__ = ["Ledger", "UnderWay"]


@dataclass(frozen=True, slots=True)
class UnderWay:
    """A save in the background, and the books before it."""

    save: BackgroundSave
    before: Books


class Ledger:
    """Keep books on checkpoints, and tell which entries are durable.

    What is still being written is part of what is saved, and of what the next save is decided on;
    `durable` names it once it is. If it fails, the books go back.

    Args:
        mode: `"min"` or `"max"`: which scores are better.

    Attributes:
        under_way: the save in the background that was begun last, until its end is seen.
        claims: the names of the files that are not there yet.
    """

    def __init__(self, mode: str) -> None:
        self.claims = Claims()
        self.open(mode)

    def open(self, mode: str) -> None:
        """Open new books."""
        self.claims.release_all()
        self._books = Books.opened(mode)
        self._plans: dict[str, Plan] = {}
        self.under_way: UnderWay | None = None

    @property
    def books(self) -> Books:
        """The books with what is under way, and without what failed."""
        self._undo_failed()
        return self._books

    @books.setter
    def books(self, books: Books) -> None:
        self._books = books

    @property
    def durable(self) -> Books:
        """The books of what is durable."""
        books, under_way = self.books, self.under_way
        return books if under_way is None or under_way.save.is_durable else under_way.before

    @property
    def obsolete(self) -> list[str]:
        """What is to be removed once what is being written is durable."""
        return [
            old
            for plan in self._plans.values()
            for old in plan.obsolete
            if plan.is_for_now or old not in plan.files
        ]

    def enter(self, plan: Plan, books: Books) -> Books:
        """Take new books, and the plan whose files they name; return the books before."""
        before, self._books = self.books, books
        self._plans[plan.files[-1]] = plan
        return before

    def strike(self, plan: Plan, before: Books) -> None:
        """Take out a plan that could not be carried out."""
        self._books = before
        self._plans.pop(plan.files[-1], None)
        self.claims.release(*plan.files, plan.link)

    def follow(self, save: BackgroundSave, before: Books) -> None:
        """Keep an eye on a save in the background."""
        self.under_way = UnderWay(save, before)

    def close(self, path: str) -> Plan | None:
        """Return the plan that is carried out now that a file is durable, or None."""
        plan = self._plans.pop(path, None)
        if plan is not None:
            self._undo_failed()
            self.under_way = None
        return plan

    def _undo_failed(self) -> None:
        """Take a save in the background that failed out of the books."""
        under_way = self.under_way
        if under_way is not None and under_way.save.has_failed:
            self.under_way, self._books = None, under_way.before
            self._plans.pop(under_way.save.paths[-1], None)
            self.claims.release_all()
