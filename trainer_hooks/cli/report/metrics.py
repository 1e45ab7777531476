"""The metrics of a run, read from its CSV files in bounded memory.

Of a metric with more values than can be shown, stretches of equally many values are made one: each
keeps its first, its last, its lowest and its highest value. So peaks stay, and nothing is averaged.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from trainer_hooks.cli.report.epochs import EpochAxis
from trainer_hooks.errors import TrainerHooksError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["METRICS", "Curve", "Metrics", "MetricsFileError", "Point"]

METRICS = "metrics.csv"
"""The file's name in a run's folder."""

_STEP, _EPOCH = "step", "epoch"
_PER_STRETCH = 4
"""Points that a stretch can keep."""


class MetricsFileError(TrainerHooksError):
    """Raised for a metrics file that cannot be read at all."""


class Point(NamedTuple):
    """A value and its place on the x axis."""

    step: int
    value: float


# thinned out while it is read: tsdownsample and its like want all values in memory first
@dataclass(slots=True)
class _Stretch:
    """Values next to each other: how many, and those of them that are kept, by step."""

    count: int
    points: list[Point]

    def take(self, count: int, points: list[Point]) -> None:
        """Take in the next values."""
        kept = [*self.points, *points]
        if len(kept) > _PER_STRETCH:
            low, high = min(kept, key=_value), max(kept, key=_value)
            kept = sorted({kept[0], low, high, kept[-1]}, key=_step)
        self.count += count
        self.points = kept


class Curve:
    """The values of one metric, of which at most so many are kept.

    What is logged for a step that was there already takes the place of that step and of all after
    it: a resumed run trains again what the one before lost.

    Args:
        most: how many points to keep, at least 8; more values than that are thinned out.

    Attributes:
        gaps: how many values were NaN or infinite; they are not among the points.
        first_gap: the step of the first of those.
        replaced: how many points gave way to later ones.
    """

    def __init__(self, most: int) -> None:
        self.gaps = 0
        self.first_gap: int | None = None
        self.replaced = 0
        self._most = max(2, most // _PER_STRETCH)
        self._per_stretch = 1
        self._stretches: list[_Stretch] = []

    def add(self, step: int, value: float) -> None:
        """Take the next value."""
        if not math.isfinite(value):
            self.gaps += 1
            if self.first_gap is None:
                self.first_gap = step
            return
        stretches = self._stretches
        if stretches and step <= stretches[-1].points[-1].step:
            self.cut(step)
        if stretches and stretches[-1].count < self._per_stretch:
            stretches[-1].take(1, [Point(step, value)])
            return
        if len(stretches) >= self._limit:
            self._thin_out()
        stretches.append(_Stretch(1, [Point(step, value)]))

    @property
    def _limit(self) -> int:
        """How many stretches there may be; while each holds one value, they hold one point each."""
        return self._most * (_PER_STRETCH if self._per_stretch == 1 else 1)

    def _thin_out(self) -> None:
        """Join neighbours until there is room for as many again."""
        while len(self._stretches) > self._most // 2:
            self._per_stretch *= 2
            joined = self._stretches[::2]
            for left, right in zip(joined, self._stretches[1::2], strict=False):
                left.take(right.count, right.points)
            self._stretches[:] = joined

    def cut(self, step: int) -> None:
        """Forget what was logged for a step and all after it."""
        stretches = self._stretches
        while stretches and stretches[-1].points[-1].step >= step:
            last = stretches.pop()
            kept = [point for point in last.points if point.step < step]
            self.replaced += len(last.points) - len(kept)
            if kept:
                stretches.append(_Stretch(len(kept), kept))
                break

    @property
    def points(self) -> list[Point]:
        """What is kept, by step."""
        return [point for stretch in self._stretches for point in stretch.points]

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(stretch.count for stretch in self._stretches)

    @property
    def is_thinned(self) -> bool:
        """Whether there were more values than are kept."""
        return self._per_stretch > 1


@dataclass(slots=True)
class Metrics:
    """All metrics of a run.

    Attributes:
        most: how many points a curve may have.
        curves: by name, in the order of the file.
        epochs: the axis of epochs.
        rows: how many rows were read.
        skipped: how many rows made no sense.
    """

    most: int
    curves: dict[str, Curve] = field(default_factory=dict)
    epochs: EpochAxis = field(default_factory=EpochAxis)
    rows: int = 0
    skipped: int = 0

    def cut(self, step: int) -> None:
        """Forget what was logged for a step and all after it."""
        for curve in self.curves.values():
            curve.cut(step)
        self.epochs.cut(step)

    def read(self, path: Path) -> None:
        """Add what a file says.

        Raises:
            MetricsFileError: it is no file of metrics, or cannot be read.
        """
        try:
            is_cut_off = _is_cut_off(path)
            with path.open(encoding="utf-8", errors="replace", newline="") as file:
                reader = csv.reader(_without_zeros(file))
                header = next(_rows(reader), None) or []
                if _STEP not in header:
                    first = header[0][:40] if header else ""
                    raise MetricsFileError(
                        f"{str(path)!r} was not written by a CSVLogger: it has no column {_STEP!r} "
                        f"(its first line begins with {first!r}). Move it away."
                    )
                self._take(header, _rows(reader), is_cut_off)
        except OSError as error:
            raise MetricsFileError(
                f"{str(path)!r} cannot be read: {error.strerror or error}. Check its rights."
            ) from error

    def _take(self, header: list[str], rows: Iterator[list[str] | None], is_cut_off: bool) -> None:
        at_step = header.index(_STEP)
        at_epoch = header.index(_EPOCH) if _EPOCH in header else None
        columns = [
            (index, self.curves.setdefault(name, Curve(self.most)))
            for index, name in enumerate(header)
            if name not in (_STEP, _EPOCH)
        ]
        before: list[str] | None = None
        is_first = True
        for row in rows:  # one behind, because the last one may be half a row
            if not is_first:
                self._take_row(before, at_step, at_epoch, columns, len(header))
            before, is_first = row, False
        if not is_first and not is_cut_off:
            self._take_row(before, at_step, at_epoch, columns, len(header))
        elif not is_first:
            self.skipped += 1
        for name in [
            name for name, curve in self.curves.items() if not (curve.count or curve.gaps)
        ]:
            del self.curves[name]

    def _take_row(
        self,
        row: list[str] | None,
        at_step: int,
        at_epoch: int | None,
        columns: list[tuple[int, Curve]],
        width: int,
    ) -> None:
        if row is None or len(row) != width:
            self.skipped += 1
            return
        try:
            step = int(float(row[at_step]))
            values = [(curve, float(row[at])) for at, curve in columns if row[at]]
            if at_epoch is not None and row[at_epoch]:
                self.epochs.note(step, int(float(row[at_epoch])))
        except (ValueError, OverflowError):
            self.skipped += 1
            return
        self.rows += 1
        for curve, value in values:
            curve.add(step, value)


def _rows(reader: Iterator[list[str]]) -> Iterator[list[str] | None]:
    """Give the rows, and None for one that cannot be read."""
    while True:
        try:
            row = next(reader, None)
        except csv.Error:
            yield None
            continue
        if row is None:
            return
        if row:
            yield row


def _without_zeros(lines: Iterator[str]) -> Iterator[str]:
    """Give lines without the zero bytes that a machine that lost its power leaves in files."""
    return (line.replace("\0", "\ufffd") for line in lines)


def _is_cut_off(path: Path) -> bool:
    """Return whether the last row has no end: it is being written, or its writer was killed."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - 1))
        return file.read(1) not in (b"\n", b"")


def _value(point: Point) -> float:
    return point.value


def _step(point: Point) -> int:
    return point.step
