"""RunLock: the callbacks that a run uses, so that no two runs use one at the same time."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from trainer_hooks.errors import CallbackError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trainer_hooks.callback import Callback
    from trainer_hooks.connector.registry import CallbackEntry

# trainers that run in threads of one process may be given the same callback
_MUTEX = threading.Lock()
_HOLDERS: dict[int, RunLock] = {}
"""The lock of the run that uses a callback now, by the callback's id."""


class RunLock:
    """The callbacks that one trainer's run uses; empty between runs.

    One run after another may use a callback, of the same trainer or of another.
    """

    def __init__(self) -> None:
        # the callbacks themselves, not only ids: the id of one that the run drops meanwhile would
        # otherwise be reused for a new object
        self._held: dict[int, Callback] = {}
        self._run = ""

    def begin(self, run: str) -> None:
        """Begin a run.

        Args:
            run: the run's description in messages.
        """
        self._run = run

    def acquire(self, entries: Iterable[CallbackEntry]) -> None:
        """Use callbacks in the run that was begun.

        Raises:
            CallbackError: a run of another trainer uses one.
        """
        with _MUTEX:
            for entry in entries:
                # a run acquires a second time, with the callbacks that its module brings
                holder = _HOLDERS.setdefault(id(entry.callback), self)
                if holder is not self:
                    # the callbacks before this one stay held until the caller's `release`
                    raise CallbackError(
                        f"{entry.label} is inside {holder._run}, and {self._run} would use the "  # noqa: SLF001
                        "same instance: its state would be that of both. Give each trainer an "
                        "instance of its own, or begin this run when the other is over."
                    )
                self._held[id(entry.callback)] = entry.callback

    def release(self) -> None:
        """End the run and release all its callbacks."""
        with _MUTEX:
            for key in self._held:
                del _HOLDERS[key]
            self._held.clear()
        self._run = ""

    @property
    def is_running(self) -> bool:
        """Whether a run has begun and was not released."""
        return bool(self._run)
