"""Retention in a folder: decide which checkpoints to keep, and find leftovers of killed saves."""

from __future__ import annotations

import math
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from trainer_hooks._system import lock_file
from trainer_hooks.checkpoint.atomic_write import (
    is_sharded_folder,
    is_unfinished_folder,
    size_of_folder,
)
from trainer_hooks.checkpoint.inspection import (
    CheckpointKind,
    FileFault,
    UnusableFileError,
    as_mapping,
    verify_file,
)
from trainer_hooks.errors import MetricError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from trainer_hooks.checkpoint.inspection import CheckpointContents

_PART = ".part"
"""The suffix of a file that is being written, or whose writer was killed."""

_IDLE = 3600.0
"""Seconds without a write after which a part file counts as a leftover."""


@dataclass(frozen=True, slots=True)
class RetentionRule:
    """The checkpoints of a folder that are to be kept.

    Attributes:
        keep: the number of newest checkpoints.
        keep_best: the number of best checkpoints besides.
        monitor: the metric that ranks the best.
        mode: `"min"` or `"max"`: which values of the metric are better.
        is_damaged_removed: whether damaged files are deleted.
    """

    keep: int = 1
    keep_best: int = 0
    monitor: str = ""
    mode: str = "min"
    is_damaged_removed: bool = False


@dataclass(frozen=True, slots=True)
class RetentionDecision:
    """The decision to keep or delete one file.

    Attributes:
        path: the file.
        size: its size in bytes.
        is_kept: whether it is kept.
        reason: why.
        stamp: modification time and inode, which change if another file takes its path.
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
    """A checkpoint that was verified."""

    path: Path
    age: tuple[float, ...]
    is_resumable: bool
    metrics: dict[str, float]
    size: int
    stamp: tuple[int, int]


def plan_retention(
    folder: Path, rule: RetentionRule, newest_format: int
) -> list[RetentionDecision]:
    """Return the decision for each checkpoint and each part file of a folder.

    Folders inside it and links are ignored; the target of a link is kept.

    Args:
        folder: the folder.
        rule: the checkpoints to keep.
        newest_format: the newest file format that this version knows.

    Raises:
        MetricError: no checkpoint has the metric that ranks the best.
        OSError: the folder cannot be read.
    """
    # listed before any file is read: a checkpoint saved meanwhile is newer, and must not push out
    # one that was judged to be among the newest
    listed = sorted(folder.iterdir())
    # not Path.resolve, which raises for a link that leads to itself
    targets = {Path(os.path.realpath(path)) for path in listed if path.is_symlink()}
    files = [
        path
        for path in listed
        if not path.is_symlink()
        and (path.is_file() or is_sharded_folder(path) or is_unfinished_folder(path))
    ]
    saved: list[_Saved] = []
    entries: list[RetentionDecision] = []
    for path in files:
        if path.name.startswith("."):
            entries += _leftover(path)
        elif path.suffix == ".ckpt":
            judged = _judged(path, rule, newest_format)
            if isinstance(judged, RetentionDecision):
                entries.append(judged)
            else:
                saved.append(judged)
    return [*_decided(saved, rule, targets), *entries]


def _judged(path: Path, rule: RetentionRule, newest_format: int) -> _Saved | RetentionDecision:
    """Verify a file; return its facts if it is a checkpoint of ours, else the decision for it."""
    stamp = _stamp(path)  # before the file is read: if it is replaced later, the stamp differs
    try:
        contents = verify_file(path, newest_format)
    except UnusableFileError as error:
        is_removed = rule.is_damaged_removed and error.fault is FileFault.DAMAGED
        return RetentionDecision(path, _size(path), not is_removed, str(error.fault), stamp)
    if contents.kind is not CheckpointKind.OURS:
        return RetentionDecision(path, contents.size, is_kept=True, reason=str(contents.kind))
    age, metrics = _age(contents, stamp), _metrics(contents)
    return _Saved(path, age, contents.is_resumable, metrics, contents.size, stamp)


def _decided(
    saved: list[_Saved], rule: RetentionRule, targets: set[Path]
) -> Iterator[RetentionDecision]:
    """Yield the decision for each verified checkpoint, the newest first."""
    newest_first = sorted(saved, key=lambda checkpoint: checkpoint.age, reverse=True)
    reasons: dict[Path, str] = {}  # the first reason to keep a file is the one that is shown
    for checkpoint in newest_first[: max(1, rule.keep)]:  # never delete all
        reasons[checkpoint.path] = "among the newest"
    for checkpoint in [checkpoint for checkpoint in newest_first if checkpoint.is_resumable][:1]:
        reasons.setdefault(checkpoint.path, "the newest that a training can go on from")
    for checkpoint in _best(newest_first, rule):
        reasons.setdefault(checkpoint.path, f"among the best by {rule.monitor}")
    for checkpoint in newest_first:
        path = checkpoint.path
        if path.resolve() in targets:
            reasons.setdefault(path, "a link points to it")
        reason = reasons.get(path, "old")
        yield RetentionDecision(path, checkpoint.size, path in reasons, reason, checkpoint.stamp)


def _best(saved: list[_Saved], rule: RetentionRule) -> list[_Saved]:
    if not rule.keep_best or not saved:
        return []
    sign = 1.0 if rule.mode == "min" else -1.0
    # a model that diverged has NaN as its score, and is never among the best
    scored = [
        checkpoint
        for checkpoint in saved
        if not math.isnan(checkpoint.metrics.get(rule.monitor, math.nan))
    ]
    if not scored:
        names = sorted({name for checkpoint in saved for name in checkpoint.metrics})
        raise MetricError(
            f"monitor {rule.monitor!r}: no checkpoint here has a value of it; there are "
            f"{', '.join(map(repr, names)) or 'none'}.{did_you_mean(rule.monitor, names)}"
        )
    # sorting is stable: of equal scores the newer is kept
    return sorted(scored, key=lambda checkpoint: sign * checkpoint.metrics[rule.monitor])[
        : rule.keep_best
    ]


def _age(contents: CheckpointContents, stamp: tuple[int, int]) -> tuple[float, ...]:
    """Return a key that grows with the progress of a training; the file's time breaks ties."""
    counters: Iterable[Any] = (
        contents.data.get("global_step"),
        contents.progress.get("batches_completed"),
        contents.data.get("epoch"),
    )
    # progress before the file's time, which a copy changes
    done = [float(value) if isinstance(value, int | float) else 0.0 for value in counters]
    return (*done, float(stamp[0]))


def _metrics(contents: CheckpointContents) -> dict[str, float]:
    latest = as_mapping(as_mapping(contents.trainer_hooks.get("metrics")).get("callback_metrics"))
    return {
        name: float(value)
        for name, value in latest.items()
        if isinstance(value, int | float) or (isinstance(value, Tensor) and value.numel() == 1)
    }


def _leftover(path: Path) -> Iterator[RetentionDecision]:
    """Yield the decision for a part file, if `path` is one."""
    is_ours = ".ckpt." in path.name or path.name.endswith(f".trainer_hooks{_PART}")
    if not path.name.endswith(_PART) or not is_ours:
        return
    stamp = _stamp(path)
    # both: over a network a lock of another machine may not be seen here
    is_stale = time.time() - stamp[0] / 1e9 > _IDLE and not _is_locked(path)
    reason = "left by a killed save" if is_stale else "a save may be under way"
    yield RetentionDecision(path, _size(path), not is_stale, reason, stamp)


def _is_locked(path: Path) -> bool:
    """Return whether a process locks a file, as a save does; True where that is not known."""
    try:
        # on NFS a lock needs a file open for writing, so that flock fails, and the file is kept
        descriptor = os.open(path, os.O_RDONLY)
        try:
            lock_file(descriptor)
        finally:
            os.close(descriptor)  # releases the lock
    except OSError:
        return True
    return False


def _stamp(path: Path) -> tuple[int, int]:
    """Return a file's modification time in nanoseconds and its inode."""
    with suppress(FileNotFoundError):
        status = path.stat()
        return status.st_mtime_ns, status.st_ino
    return 0, 0


def _size(path: Path) -> int:
    """Return the size of a file or folder in bytes; 0 if it is gone."""
    with suppress(FileNotFoundError):
        return size_of_folder(path) if path.is_dir() else path.stat().st_size
    return 0
