"""Alarm: a process that fails, or waits in vain, ends all processes within seconds, by name."""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, ClassVar

from trainer_hooks.errors import UsageError
from trainer_hooks.hooks import describe_error, place_in_work
from trainer_hooks.runtime.standing import Note, Standing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainer_hooks.runtime.topology import Topology

__all__ = ["Alarm"]

_POLL_S = 0.5
_GRACE_S = 3.0
"""How long a process may take to notice by itself that another one has failed."""

_END_S = 5.0
"""How long one that has failed, too, may take to end."""


class Alarm:
    """Watch, from a thread, whether another process has failed; end this one if so.

    A process that waits in a collective is deaf: neither signals nor exceptions reach it. So the
    error of the one that failed is put where the watching threads of all others find it.

    The same threads find out when all wait for different things, which none of them can ever get:
    each tells what it waits for once that takes long, and rank 0 compares. What is waited for may
    be a collective of the user's own, in a hook. One process that is at work is enough for silence.

    Args:
        store: torch's key-value store that all processes share.
        topology: which process this is.
        patience: seconds that a process waits before it tells for what.

    Attributes:
        run: the number of the run, the same in all processes.
        has_gone_off: whether a process failed, this one or another.
    """

    _runs_begun: ClassVar[int] = 0
    """Runs of all trainers of this process: every process begins the same ones."""

    def __init__(self, store: Any, topology: Topology, patience: float) -> None:
        self._store = store
        self._topology = topology
        self._rank = topology.global_rank
        self.run = 0
        self._off = threading.Event()
        self._thread: threading.Thread | None = None
        self._patience = patience
        self._note: Note | None = None
        self._standing = Standing(0)
        self._told = ""
        self._has_failed = threading.Event()
        self.has_gone_off = False

    def arm(self) -> None:
        """Begin to watch, as a run begins.

        Raises:
            UsageError: a process failed in an earlier run: they do not find together any more.
        """
        if self.has_gone_off:
            raise UsageError(
                "a process failed in the run before, so that the processes do not find together "
                "any more: start them anew."
            )
        Alarm._runs_begun += 1
        self.run = Alarm._runs_begun
        self._standing = Standing(threading.get_ident())
        self._off = threading.Event()
        self._has_failed.clear()
        self._note = None
        self._thread = threading.Thread(
            target=self._watch, args=(self._off,), name="trainer_hooks alarm", daemon=True
        )
        self._thread.start()

    def disarm(self) -> None:
        """End to watch, as a run ends or all have come to its end."""
        self._off.set()
        if self._thread is not None:
            self._thread.join(_POLL_S)

    def sound(self, error: BaseException) -> None:
        """Tell the others that this process fails; the first that does so is heard."""
        self._has_failed.set()
        self.has_gone_off = True
        text = f"rank {self._rank} of {self._topology.world_size} failed: {describe_error(error)}"
        self.sound_of(self._rank, text)

    def sound_of(self, rank: int, text: str) -> None:
        """Tell the others of a process that has failed, or has ended without a word."""
        with suppress(RuntimeError):  # what keeps the store is gone: that is heard, too
            self._store.compare_set(self._key("error"), "", f"{rank}\n{text}")

    def heard(self) -> str:
        """Return what another process failed with, or an empty text."""
        try:
            rank, text = self._error()
        except RuntimeError:
            return ""
        return text if text and rank != self._rank else ""

    def count(self, what: str, number: int) -> int:
        """Add to a number that all processes share; return what it is then."""
        return int(self._store.add(self._key(what), number))

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Note that this process waits for the others."""
        self._note = Note(what, time.monotonic())
        try:
            yield
        finally:
            self._note = None

    def begin_meeting(self, what: str) -> None:
        """Note that this process computes, and then waits for the others, from here on."""
        self._note = Note(what, 0.0, computes=True)

    def end_meeting(self) -> None:
        """Note that it does so no longer."""
        self._note = None

    def _key(self, what: str) -> str:
        return f"trainer_hooks/{self.run}/{what}"

    def _error(self) -> tuple[int, str]:
        key = self._key("error")
        if not self._store.check([key]):
            return -1, ""
        rank, text = self._store.get(key).decode().split("\n", 1)
        return int(rank), text

    def _watch(self, off: threading.Event) -> None:
        seen: dict[int, str] = {}
        while not off.wait(_POLL_S):
            try:
                rank, text = self._error()
                if not text:
                    self._tell_waiting()
                    seen = self._compare(seen)
            except RuntimeError:  # of the store
                rank, text = -1, "the process that the others find each other by has ended"
            if text and not off.is_set():
                self._end(rank, text, off)
                return

    def _end(self, rank: int, text: str, off: threading.Event) -> None:
        """End this process, if it does not by itself."""
        self.has_gone_off = True
        if rank != self._rank and not self._has_failed.is_set():
            print(f"rank {self._rank}: {text}\nrank {self._rank}: ending, too", file=sys.stderr)
            sys.stderr.flush()
            self._has_failed.wait(_GRACE_S)
        if self._has_failed.is_set() and off.wait(_END_S):
            return
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)

    def _tell_waiting(self) -> None:
        """Tell what this process waits for, once it has for long."""
        wait, told = self._standing.look(self._note), ""
        if wait is not None and time.monotonic() - wait.since >= self._patience:
            place = place_in_work(self._standing.frame())
            told = f"{wait.since}:{wait.what}{f' in {place}' if place else ''}"
        if told != self._told:
            self._store.set(self._key(f"waits/{self._rank}"), told)
            self._told = told

    def _compare(self, seen: dict[int, str]) -> dict[int, str]:
        """Sound the alarm if all processes wait, and not for the same."""
        if self._rank != 0 or not self._told:
            return {}
        found: dict[int, str] = {}
        for rank in range(self._topology.world_size):
            key = self._key(f"waits/{rank}")
            text = self._store.get(key).decode() if self._store.check([key]) else ""
            if not text:
                return {}
            found[rank] = text
        # they have told it twice: none has gone on meanwhile
        found_at = {rank: text.partition(":")[2] for rank, text in found.items()}
        if found == seen and len({text.partition(" in on_")[0] for text in found_at.values()}) > 1:
            told = "; ".join(f"rank {rank} for {text}" for rank, text in found_at.items())
            self._store.compare_set(
                self._key("error"),
                "",
                f"-1\nthe processes wait for each other, and none can go on: {told}. All must "
                "come to the same collectives in the same order",
            )
        return found
