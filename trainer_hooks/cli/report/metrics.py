"""Read the metrics of a run from its CSV files, in bounded memory.

A metric with more values than can be shown is thinned out: its values are divided into stretches of
equal length, of which each keeps its first, last, lowest and highest value. So peaks stay, and
nothing is averaged.
"""

from __future__ import annotations

import csv
import math
from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import chain, pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from trainer_hooks.errors import TrainerHooksError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class EpochAxis:
    """An x axis in epochs: 1.5 is the middle of the second epoch.

    An epoch ends with the last step logged in it. The last epoch may still be running: if it is
    shorter than the one before, it is taken to be as long as that.
    """

    def __init__(self) -> None:
        self._ends: dict[int, int] = {}
        self._first = 0

    def add(self, step: int, epoch: int) -> None:
        """Add a step that was logged in an epoch."""
        if not self._ends:
            self._first = step
        self._ends[epoch] = max(step, self._ends.get(epoch, step))

    def cut(self, step: int) -> None:
        """Remove the epochs that ended at a step or after it."""
        self._ends = {epoch: end for epoch, end in self._ends.items() if end < step}

    def __bool__(self) -> bool:
        return bool(self._ends)

    def positions(self, steps: list[int]) -> list[float]:
        """Return the position of each step in epochs."""
        knots = list(self._knots())
        ends = [step for step, _ in knots]
        positions = []
        for step in steps:
            # from the second knot to the last: a step outside lies on the nearest piece, prolonged
            right = bisect_left(ends, step, 1, len(ends) - 1)
            # numpy.interp would clamp what lies outside, and NumPy need not be installed
            (step_0, epoch_0), (step_1, epoch_1) = knots[right - 1], knots[right]
            positions.append(epoch_0 + (step - step_0) * (epoch_1 - epoch_0) / (step_1 - step_0))
        return positions

    def _knots(self) -> Iterator[tuple[int, float]]:
        """Yield steps in ascending order, each with the epochs completed by then."""
        ends = sorted(self._ends.items())
        first = ends[0][0] if ends else 0
        before, length = self._beginning(ends), 0
        yield before, float(first)
        for index, (epoch, end) in enumerate(ends):
            if end <= before:
                continue
            is_last = index == len(ends) - 1
            whole = max(before + length, end) if is_last else end
            yield whole, float(epoch + 1)
            before, length = end, end - before
        if not length:
            yield before + 1, float(first + 1)

    def _beginning(self, ends: list[tuple[int, int]]) -> int:
        """Return the last step before the first epoch, estimated if its start was not logged."""
        if not ends or ends[0][0] == 0:
            return -1
        as_long = ends[0][1] - (ends[1][1] - ends[0][1]) if len(ends) > 1 else self._first - 1
        return max(-1, min(as_long, self._first - 1))


METRICS = "metrics.csv"
"""The metrics file's name in a run's folder."""

_STEP, _EPOCH = "step", "epoch"
_END: list[str] = []
_PER_STRETCH = 4
"""The maximum of points that a stretch keeps: the first, last, lowest and highest."""


class MetricsFileError(TrainerHooksError):
    """Raised for a metrics file that cannot be read at all."""


class CurvePoint(NamedTuple):
    """A value of a curve with its step."""

    step: int
    value: float


# thinned out while the file is read: tsdownsample and the like want all values in memory first
@dataclass(slots=True)
class _Stretch:
    """Neighbouring values of a curve: their number, and the points that are kept, by step."""

    count: int
    points: list[CurvePoint]

    def take(self, count: int, points: list[CurvePoint]) -> None:
        """Add the values that follow, and keep the first, last, lowest and highest."""
        joined = [*self.points, *points]
        if len(joined) > _PER_STRETCH:
            low, high = min(joined, key=attrgetter("value")), max(joined, key=attrgetter("value"))
            # a set: the first may be the lowest as well
            joined = sorted({joined[0], low, high, joined[-1]}, key=attrgetter("step"))
        self.count += count
        self.points = joined


class Curve:
    """The values of one metric in one run, thinned out to a maximum of points.

    A value for a step that is there already replaces that step and all later ones: a resumed run
    trains again the steps that the run before lost.

    Args:
        most: the maximum of points, at least 8.

    Attributes:
        gaps: the number of values that were NaN or infinite; they are not among the points.
        first_gap: the step of the first of those.
        replaced: the number of points that later ones replaced.
    """

    def __init__(self, most: int) -> None:
        self.gaps = 0
        self.first_gap: int | None = None
        self._last_gap: CurvePoint | None = None
        self.replaced = 0
        self._most = max(2, most // _PER_STRETCH)
        self._per_stretch = 1
        self._stretches: list[_Stretch] = []

    def add(self, step: int, value: float) -> None:
        """Add the next value."""
        if not math.isfinite(value):
            self.gaps += 1
            if self.first_gap is None:
                self.first_gap = step
            self._last_gap = CurvePoint(step, value)
            return
        if self._last_gap is not None and step <= self._last_gap.step:
            self._last_gap = None  # a resumed run logs again what was lost
        stretches = self._stretches
        if stretches and step <= stretches[-1].points[-1].step:
            self.cut(step)  # a resumed run logs again what was lost
        if stretches and stretches[-1].count < self._per_stretch:
            stretches[-1].take(1, [CurvePoint(step, value)])
            return
        if len(stretches) >= self._limit:
            self._thin_out()
        stretches.append(_Stretch(1, [CurvePoint(step, value)]))

    @property
    def _limit(self) -> int:
        """The maximum of stretches; more of them while each still holds a single point."""
        return self._most * (_PER_STRETCH if self._per_stretch == 1 else 1)

    def _thin_out(self) -> None:
        """Join neighbouring stretches until at most half of their maximum is left."""
        while len(self._stretches) > self._most // 2:
            self._per_stretch *= 2
            joined = self._stretches[::2]
            # not strict: of an odd number the last one stays alone
            for left, right in zip(joined, self._stretches[1::2], strict=False):
                left.take(right.count, right.points)
            self._stretches[:] = joined

    def cut(self, step: int) -> None:
        """Remove the values of a step and of all later ones."""
        if self._last_gap is not None and step <= self._last_gap.step:
            self._last_gap = None
        stretches = self._stretches
        while stretches and stretches[-1].points[-1].step >= step:
            last = stretches.pop()
            earlier = [point for point in last.points if point.step < step]
            self.replaced += len(last.points) - len(earlier)
            if earlier:
                # the number of thinned-out values before the step is unknown: count those kept
                stretches.append(_Stretch(len(earlier), earlier))
                break

    @property
    def points(self) -> list[CurvePoint]:
        """The points that are kept, by step."""
        return [point for stretch in self._stretches for point in stretch.points]

    @property
    def last(self) -> CurvePoint | None:
        """The value of the highest step, which may be NaN or infinite; None without any."""
        point = self._stretches[-1].points[-1] if self._stretches else None
        if self._last_gap is not None and (point is None or point.step < self._last_gap.step):
            return self._last_gap
        return point

    @property
    def count(self) -> int:
        """The number of values before they were thinned out."""
        return sum(stretch.count for stretch in self._stretches)


@dataclass(slots=True)
class Metrics:
    """All metrics of a run.

    Attributes:
        most: the maximum of points of a curve.
        curves: the curves by metric name, in the order of the file.
        epochs: the axis of epochs.
        rows: the number of rows that were read.
        skipped: the number of unreadable rows.
    """

    most: int
    curves: dict[str, Curve] = field(default_factory=dict)
    epochs: EpochAxis = field(default_factory=EpochAxis)
    rows: int = 0
    skipped: int = 0

    def cut(self, step: int) -> None:
        """Remove the values of a step and of all later ones from every curve."""
        for curve in self.curves.values():
            curve.cut(step)
        self.epochs.cut(step)

    def read(self, path: Path) -> None:
        """Add the values in a CSV file.

        Raises:
            MetricsFileError: it is not a metrics file, or cannot be read.
        """
        try:
            is_cut_off = _is_cut_off(path)
            # newline: csv reads line breaks within quotes itself
            with path.open(encoding="utf-8", errors="replace", newline="") as file:
                # the csv module refuses zero bytes, which a power loss leaves in files
                reader = csv.reader(line.replace("\0", "\ufffd") for line in file)
                header = next(_rows(reader), None) or []
                if _STEP not in header:
                    first = header[0][:40] if header else ""
                    raise MetricsFileError(
                        f"{str(path)!r} was not written by a CSVLogger: it has no column {_STEP!r} "
                        f"(its first line begins with {first!r}). Move it away."
                    )
                self._read_rows(header, _rows(reader), is_cut_off)
        except OSError as error:
            raise MetricsFileError(
                f"{str(path)!r} cannot be read: {error.strerror or error}. Check its rights."
            ) from error

    def _read_rows(
        self, header: list[str], rows: Iterator[list[str] | None], is_cut_off: bool
    ) -> None:
        at_step = header.index(_STEP)
        at_epoch = header.index(_EPOCH) if _EPOCH in header else None
        columns = [
            (index, self.curves.setdefault(name, Curve(self.most)))
            for index, name in enumerate(header)
            if name not in (_STEP, _EPOCH)
        ]
        # `rows` ends with a row of its own kind, so that the last one is known while it is read
        for row, following in pairwise(chain(rows, [_END])):
            # half a number reads as a number: 0.1 of 0.123
            is_half = is_cut_off and following is _END
            if is_half or row is None or len(row) != len(header):
                self.skipped += 1
                continue
            try:
                # by way of float: pandas and other tools write steps as 10.0
                step = int(float(row[at_step]))
                values = [(curve, float(row[at])) for at, curve in columns if row[at]]
                if at_epoch is not None and row[at_epoch]:
                    self.epochs.add(step, int(float(row[at_epoch])))
            except (ValueError, OverflowError):
                self.skipped += 1
                continue
            self.rows += 1
            for curve, value in values:
                curve.add(step, value)
        # a list first: the dict shrinks in the loop
        for name in [
            name for name, curve in self.curves.items() if not (curve.count or curve.gaps)
        ]:
            del self.curves[name]


def _rows(reader: Iterator[list[str]]) -> Iterator[list[str] | None]:
    """Yield the rows, and None for each row that cannot be read; leave empty ones out."""
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


def _is_cut_off(path: Path) -> bool:
    """Return whether the last row is incomplete: still being written, or its writer was killed."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        # an empty file has no last byte, and read() then gives none
        file.seek(max(0, size - 1))
        return file.read(1) not in (b"\n", b"")
