"""Which checkpoints of a folder are old, and which of its files nobody will finish."""

from __future__ import annotations

import fcntl
import math
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from trainer_hooks.checkpoint.folder import is_folder, size_of_folder
from trainer_hooks.checkpoint.inspection import Fault, Kind, UnusableFileError, mapping, verify_file
from trainer_hooks.checkpoint.placing import is_unfinished_folder
from trainer_hooks.errors import MetricError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from trainer_hooks.checkpoint.inspection import Contents

__all__ = ["Entry", "Rule", "plan_pruning"]

_PART = ".part"
"""How the name of a file ends that is being written, or whose writer was killed."""

_IDLE = 3600.0
"""Seconds without a write after which an unfinished file is taken for a leftover."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What is to stay.

    Attributes:
        keep: how many of the newest.
        keep_best: how many of the best besides.
        monitor: the metric that tells the best.
        mode: `"min"` or `"max"`: which values of it are better.
        is_damaged_removed: whether damaged files go.
    """

    keep: int = 1
    keep_best: int = 0
    monitor: str = ""
    mode: str = "min"
    is_damaged_removed: bool = False


@dataclass(frozen=True, slots=True)
class Entry:
    """What is to become of a file.

    Attributes:
        path: the file.
        size: its bytes.
        is_kept: whether it stays.
        reason: why.
        stamp: what tells the file that was judged from one that took its place since.
    """

    path: Path
    size: int
    is_kept: bool
    reason: str
    stamp: tuple[int, int] = (0, 0)

    @property
    def is_unchanged(self) -> bool:
        """Whether the file is still the one that was judged, or is gone."""
        return not self.path.exists() or _stamp(self.path) == self.stamp


@dataclass(frozen=True, slots=True)
class _Saved:
    """A whole checkpoint."""

    path: Path
    age: tuple[float, ...]
    is_resumable: bool
    metrics: dict[str, float]
    size: int
    stamp: tuple[int, int]


def plan_pruning(folder: Path, rule: Rule, newest_format: int) -> list[Entry]:
    """Return what is to become of each checkpoint of a folder, and of unfinished files.

    Folders inside of it are left alone, and so are links; what a link points to stays.

    Args:
        folder: the folder.
        rule: what is to stay.
        newest_format: the newest layout that this version knows.

    Raises:
        MetricError: no checkpoint has the metric that tells the best.
        OSError: the folder cannot be read.
    """
    # read first: what comes while the files are read is newer than all of them
    listed = sorted(folder.iterdir())
    targets = {path.resolve() for path in listed if path.is_symlink()}
    files = [
        path
        for path in listed
        if not path.is_symlink() and (path.is_file() or _is_of_several(path))
    ]
    saved: list[_Saved] = []
    entries: list[Entry] = []
    for path in files:
        if path.name.startswith("."):
            entries += _leftover(path)
        elif path.suffix == ".ckpt":
            judged = _judged(path, rule, newest_format)
            if isinstance(judged, Entry):
                entries.append(judged)
            else:
                saved.append(judged)
    return [*_decided(saved, rule, targets), *entries]


def _is_of_several(path: Path) -> bool:
    """Return whether a folder is a checkpoint of several processes, or an unfinished one."""
    return is_folder(path) or is_unfinished_folder(path)


def _judged(path: Path, rule: Rule, newest_format: int) -> _Saved | Entry:
    """Verify a file: return what it is if it is a checkpoint of ours, or what becomes of it."""
    stamp = _stamp(path)  # before the file is read: what comes later is another file
    try:
        contents = verify_file(path, newest_format)
    except UnusableFileError as error:
        is_removed = rule.is_damaged_removed and error.fault is Fault.DAMAGED
        return Entry(path, _size(path), not is_removed, str(error.fault), stamp)
    if contents.kind is not Kind.OURS:
        return Entry(path, contents.size, is_kept=True, reason=str(contents.kind))
    age, metrics = _age(contents, stamp), _metrics(contents)
    return _Saved(path, age, contents.is_resumable, metrics, contents.size, stamp)


def _decided(saved: list[_Saved], rule: Rule, targets: set[Path]) -> Iterator[Entry]:
    """Give what becomes of each whole checkpoint, the newest first."""
    newest_first = sorted(saved, key=lambda checkpoint: checkpoint.age, reverse=True)
    reasons: dict[Path, str] = {}
    for checkpoint in newest_first[: max(1, rule.keep)]:
        reasons[checkpoint.path] = "among the newest"
    for checkpoint in [found for found in newest_first if found.is_resumable][:1]:
        reasons.setdefault(checkpoint.path, "the newest that a training can go on from")
    for checkpoint in _best(newest_first, rule):
        reasons.setdefault(checkpoint.path, f"among the best by {rule.monitor}")
    for checkpoint in newest_first:
        path = checkpoint.path
        if path.resolve() in targets:
            reasons.setdefault(path, "a link points to it")
        reason = reasons.get(path, "old")
        yield Entry(path, checkpoint.size, path in reasons, reason, checkpoint.stamp)


def _best(saved: list[_Saved], rule: Rule) -> list[_Saved]:
    if not rule.keep_best or not saved:
        return []
    sign = 1.0 if rule.mode == "min" else -1.0
    scored = [found for found in saved if not math.isnan(found.metrics.get(rule.monitor, math.nan))]
    if not scored:
        known = sorted({name for found in saved for name in found.metrics})
        raise MetricError(
            f"monitor {rule.monitor!r}: no checkpoint here has a value of it; there are "
            f"{', '.join(map(repr, known)) or 'none'}.{nearest(rule.monitor, known)}"
        )
    return sorted(scored, key=lambda found: sign * found.metrics[rule.monitor])[: rule.keep_best]


def _age(contents: Contents, stamp: tuple[int, int]) -> tuple[float, ...]:
    """Return what is greater the further a training had come; equal ones are told by the clock."""
    counters: Iterable[Any] = (
        contents.data.get("global_step"),
        contents.progress.get("batches_completed"),
        contents.data.get("epoch"),
    )
    done = [float(value) if isinstance(value, int | float) else 0.0 for value in counters]
    return (*done, float(stamp[0]))


def _metrics(contents: Contents) -> dict[str, float]:
    latest = mapping(mapping(contents.own.get("metrics")).get("callback_metrics"))
    return {
        name: float(value)
        for name, value in latest.items()
        if isinstance(value, int | float) or (isinstance(value, Tensor) and value.numel() == 1)
    }


def _leftover(path: Path) -> Iterator[Entry]:
    """Give an unfinished file of a save, if `path` is one."""
    is_ours = ".ckpt." in path.name or path.name.endswith(f".trainer_hooks{_PART}")
    if not path.name.endswith(_PART) or not is_ours:
        return
    stamp = _stamp(path)
    is_stale = time.time() - stamp[0] / 1e9 > _IDLE and not _is_locked(path)
    reason = "left by a killed save" if is_stale else "a save may be under way"
    yield Entry(path, _size(path), not is_stale, reason, stamp)


def _is_locked(path: Path) -> bool:
    """Return whether a process holds a file, as a save may; where nobody can tell, it does."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(descriptor)  # which lets go of it
    except OSError:
        return True
    return False


def _stamp(path: Path) -> tuple[int, int]:
    """Return when a file was written, in nanoseconds, and its number on the disk."""
    with suppress(FileNotFoundError):
        status = path.stat()
        return status.st_mtime_ns, status.st_ino
    return 0, 0


def _size(path: Path) -> int:
    """Return a file's bytes; none if it is gone meanwhile."""
    with suppress(FileNotFoundError):
        return size_of_folder(path) if path.is_dir() else path.stat().st_size
    return 0
