"""Occupation: which callbacks are inside a run, so that no two runs use one at once."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from trainer_hooks.errors import CallbackError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trainer_hooks.callback import Callback
    from trainer_hooks.connector.roster import Entry

__all__ = ["Occupation"]

_LOCK = threading.Lock()
_OCCUPIED: dict[int, Occupation] = {}
"""Who is inside a run now, by id; it is kept alive by the trainer that runs it."""


class Occupation:
    """The callbacks that one trainer has in its run; empty between runs.

    One run after another may use a callback, of the same trainer or of another.
    """

    def __init__(self) -> None:
        # the callbacks themselves: one that a run drops lives on, and its id is no other's
        self._taken: dict[int, Callback] = {}
        self._run = ""

    def begin(self, run: str) -> None:
        """Begin a run.

        Args:
            run: how messages name it.
        """
        self._run = run

    def take(self, entries: Iterable[Entry]) -> None:
        """Use callbacks in the run that was begun.

        Raises:
            CallbackError: one is inside a run of another trainer.
        """
        with _LOCK:
            for entry in entries:
                holder = _OCCUPIED.setdefault(id(entry.callback), self)
                if holder is not self:
                    raise CallbackError(
                        f"{entry.label} is inside {holder._run}, and {self._run} would use the "  # noqa: SLF001
                        "same instance: its state would be that of both. Give each trainer an "
                        "instance of its own, or begin this run when the other is over."
                    )
                self._taken[id(entry.callback)] = entry.callback

    def release(self) -> None:
        """Let go of all of them: the run is over."""
        with _LOCK:
            for key in self._taken:
                del _OCCUPIED[key]
            self._taken.clear()
        self._run = ""

    @property
    def is_running(self) -> bool:
        """Whether a run is under way."""
        return bool(self._run)
