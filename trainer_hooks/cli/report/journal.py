"""The journal of a run, read back: what was started, how it went, and how it ended."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from trainer_hooks.callbacks.reporting.journal import JOURNAL
from trainer_hooks.callbacks.reporting.run_facts import process_started

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["Outcome", "Session", "number", "read_journal", "text", "with_outcomes"]

_LONGEST_LINE = 1 << 20
_MOST_RECORDS = 200_000


class Outcome(StrEnum):
    """How a start went."""

    FINISHED = "finished"
    FAILED = "failed"
    SIGNAL = "ended by a signal"
    KILLED = "killed"
    RUNNING = "running"
    UNKNOWN = "running or killed"


@dataclass(slots=True)
class Session:
    """One call of fit, validate, test or predict, from its start to its end.

    Attributes:
        folder: where its journal lies.
        start: the first record.
        samples: how far it was at which moment.
        saved: which checkpoints it wrote.
        end: the last record; empty if there is none.
        last_seen: when something was noted last, in seconds since 1970.
        outcome: how it went.
    """

    folder: Path
    start: dict[str, Any]
    samples: list[dict[str, Any]] = field(default_factory=list)
    saved: list[dict[str, Any]] = field(default_factory=list)
    end: dict[str, Any] = field(default_factory=dict)
    last_seen: float = 0.0
    outcome: Outcome = Outcome.UNKNOWN

    @property
    def stage(self) -> str:
        """What was called."""
        return text(self.start, "stage") or "fit"

    @property
    def began(self) -> float:
        """When it was started, in seconds since 1970."""
        return number(self.start, "time")

    @property
    def resumed_from(self) -> str:
        """The checkpoint that it went on from, or an empty string."""
        return text(self.start, "resumed_from")

    def place(self, name: str) -> int:
        """Return a counter as it was when something was noted last."""
        known = [self.start, *self.samples, *self.saved, self.end]
        return int(max((number(record, name) for record in known), default=0))


def number(record: dict[str, Any], name: str) -> float:
    """Return a number of a record; 0 for what is none."""
    value = record.get(name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) < 1e15 else 0.0  # type: ignore[arg-type]


def text(record: dict[str, Any], name: str) -> str:
    """Return a text of a record; an empty one for what is none."""
    value = record.get(name)
    return value if isinstance(value, str) else ""


def read_journal(folder: Path) -> tuple[list[Session], int]:
    """Return what a folder's journal tells, in its order, and how many lines made no sense.

    Raises:
        OSError: there is a journal, and it cannot be read.
    """
    path = folder / JOURNAL
    sessions: dict[str, Session] = {}
    bad = 0
    if not path.is_file():
        return [], 0
    for record in _records(path):
        if record is None:
            bad += 1
            continue
        key = text(record, "run")
        if record["event"] == "start":
            sessions.setdefault(key, Session(folder, record))
        elif key in sessions:
            _add(sessions[key], record)
        if key in sessions:
            found = sessions[key]
            found.last_seen = max(found.last_seen, number(record, "time"))
    return list(sessions.values()), bad


def with_outcomes(sessions: list[Session]) -> list[Session]:
    """Find out how each went, seen from those that came after it; return them."""
    for index, session in enumerate(sessions):
        session.outcome = _outcome(session, is_followed=index + 1 < len(sessions))
    return sessions


def _add(session: Session, record: dict[str, Any]) -> None:
    if record["event"] == "sample":
        session.samples.append(record)
    elif record["event"] == "saved":
        session.saved.append(record)
    elif record["event"] == "end":
        session.end = record


def _outcome(session: Session, *, is_followed: bool) -> Outcome:
    if session.end:
        named = {"failed": Outcome.FAILED, "signal": Outcome.SIGNAL}
        return named.get(text(session.end, "status"), Outcome.FINISHED)
    hardware = session.start.get("hardware")
    host = text(hardware, "host") if isinstance(hardware, dict) else ""
    if host == socket.gethostname():
        return Outcome.RUNNING if _is_alive(session.start) else Outcome.KILLED
    return Outcome.KILLED if is_followed else Outcome.UNKNOWN


def _is_alive(start: dict[str, Any]) -> bool:
    """Return whether the process that noted a start is still there, on this machine."""
    pid = int(number(start, "pid"))
    if pid <= 0:
        return False
    # psutil would tell, and need not be installed
    told = text(start, "process")
    if told:
        return process_started(pid) == told
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # it is somebody else's
    except OSError:
        return False
    return True


def _records(path: Path) -> Iterator[dict[str, Any] | None]:
    """Give the records, and None for a line that is none."""
    with path.open("rb") as file:
        for _ in range(_MOST_RECORDS):
            line = file.readline(_LONGEST_LINE)
            if not line:
                return
            if line.strip():
                yield _record(line)


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    is_record = isinstance(found, dict) and isinstance(found.get("event"), str)
    return found if is_record else None
