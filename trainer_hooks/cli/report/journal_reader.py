"""Read the journal of a run: each call of fit, validate, test or predict, with its outcome."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from trainer_hooks.callbacks.reporting.journal import JOURNAL
from trainer_hooks.callbacks.reporting.run_facts import process_start_time

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["JournaledRun", "Outcome", "number", "read_journal", "set_outcomes", "text"]

_MAX_LINE_BYTES = 1 << 20
_MAX_RECORDS = 200_000


class Outcome(StrEnum):
    """The outcome of a journaled run."""

    FINISHED = "finished"
    FAILED = "failed"
    SIGNAL = "ended by a signal"
    KILLED = "killed"
    RUNNING = "running"
    UNKNOWN = "running or killed"


@dataclass(slots=True)
class JournaledRun:
    """One call of fit, validate, test or predict, from its start to its end.

    Attributes:
        folder: the folder of its journal.
        start: its first record.
        samples: the records of its counters, in the order of time.
        saved: the records of the checkpoints that it wrote.
        end: its last record; empty if it did not end in order.
        last_seen: the time of its latest record, in seconds since 1970.
        outcome: its outcome; set by `set_outcomes`.
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
        """The stage: fit, validate, test or predict."""
        return text(self.start, "stage") or "fit"

    @property
    def began(self) -> float:
        """The time of its start, in seconds since 1970."""
        return number(self.start, "time")

    @property
    def resumed_from(self) -> str:
        """The path of the checkpoint that it resumed from, or an empty string."""
        return text(self.start, "resumed_from")

    def last_count(self, name: str) -> int:
        """Return the highest value of a counter in its records."""
        records = [self.start, *self.samples, *self.saved, self.end]
        return int(max((number(record, name) for record in records), default=0))


def number(record: dict[str, Any], name: str) -> float:
    """Return a record's value as a float, 0.0 if it is not a number."""
    value = record.get(name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # a damaged file may hold any number; no time or counter is larger
    return float(value) if is_number and abs(value) < 1e15 else 0.0  # type: ignore[arg-type]


def text(record: dict[str, Any], name: str) -> str:
    """Return a record's value if it is a string, an empty string otherwise."""
    value = record.get(name)
    return value if isinstance(value, str) else ""


def read_journal(folder: Path) -> tuple[list[JournaledRun], int]:
    """Read a folder's journal; return its runs in order and the number of unreadable lines.

    Raises:
        OSError: there is a journal, and it cannot be read.
    """
    path = folder / JOURNAL
    runs: dict[str, JournaledRun] = {}
    unreadable = 0
    if not path.is_file():
        return [], 0
    for record in _records(path):
        if record is None:
            unreadable += 1
            continue
        key = text(record, "run")
        if record["event"] == "start":
            runs.setdefault(key, JournaledRun(folder, record))
        elif key in runs:
            _add_record(runs[key], record)
        if key in runs:
            run = runs[key]
            run.last_seen = max(run.last_seen, number(record, "time"))
    return list(runs.values()), unreadable


def set_outcomes(runs: list[JournaledRun]) -> list[JournaledRun]:
    """Set the outcome of each run, given in the order of time; return the runs."""
    for index, run in enumerate(runs):
        run.outcome = _outcome(run, is_followed=index + 1 < len(runs))
    return runs


def _add_record(run: JournaledRun, record: dict[str, Any]) -> None:
    if record["event"] == "sample":
        run.samples.append(record)
    elif record["event"] == "saved":
        run.saved.append(record)
    elif record["event"] == "end":
        run.end = record


def _outcome(run: JournaledRun, *, is_followed: bool) -> Outcome:
    if run.end:
        by_status = {"failed": Outcome.FAILED, "signal": Outcome.SIGNAL}
        return by_status.get(text(run.end, "status"), Outcome.FINISHED)
    hardware = run.start.get("hardware")
    host = text(hardware, "host") if isinstance(hardware, dict) else ""
    if host == socket.gethostname():
        return Outcome.RUNNING if _is_alive(run.start) else Outcome.KILLED
    # on another machine nobody can look; but where a later run took over, this one is over
    return Outcome.KILLED if is_followed else Outcome.UNKNOWN


def _is_alive(start: dict[str, Any]) -> bool:
    """Return whether the process that wrote a start record still runs on this machine."""
    pid = int(number(start, "pid"))
    if pid <= 0:
        return False
    # not psutil, which need not be installed; the start time tells a reused process id apart
    started = text(start, "process")
    if started:
        return process_start_time(pid) == started
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # there is such a process, of another user
    except OSError:
        return False
    return True


def _records(path: Path) -> Iterator[dict[str, Any] | None]:
    """Yield the records, and None for each line that is none."""
    with path.open("rb") as file:
        for _ in range(_MAX_RECORDS):
            line = file.readline(_MAX_LINE_BYTES)
            if not line:
                return
            if line.strip():
                yield _parse_record(line)


def _parse_record(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    is_record = isinstance(record, dict) and isinstance(record.get("event"), str)
    return record if is_record else None
