"""An axis of epochs for what was logged at steps."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["EpochAxis"]


class EpochAxis:
    """Where on an axis of epochs a step stands: 1.5 is the middle of the second epoch.

    An epoch ends with the last step that was logged in it. The last one may still be under way, and
    is taken to be as long as the one before if it is shorter.
    """

    def __init__(self) -> None:
        self._ends: dict[int, int] = {}
        self._first = 0

    def note(self, step: int, epoch: int) -> None:
        """Take note of a step that was logged in an epoch."""
        if not self._ends:
            self._first = step
        if epoch in self._ends:
            self._ends[epoch] = max(step, self._ends[epoch])
        else:
            self._ends[epoch] = step

    def cut(self, step: int) -> None:
        """Forget the epochs that ended at a step or after it."""
        self._ends = {epoch: end for epoch, end in self._ends.items() if end < step}

    def __bool__(self) -> bool:
        return bool(self._ends)

    def places(self, steps: list[int]) -> list[float]:
        """Return the place of each step."""
        knots = list(self._knots())
        ends = [step for step, _ in knots]
        return [_between(knots, bisect_left(ends, step, 1, len(ends) - 1), step) for step in steps]

    def _knots(self) -> Iterator[tuple[int, float]]:
        """Give steps, ascending, and how many epochs were done with each."""
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
        """Return the last step before the first epoch; of a run that began earlier about that."""
        if not ends or ends[0][0] == 0:
            return -1
        as_long = ends[0][1] - (ends[1][1] - ends[0][1]) if len(ends) > 1 else self._first - 1
        return max(-1, min(as_long, self._first - 1))


def _between(knots: list[tuple[int, float]], right: int, step: int) -> float:
    # numpy.interp would clamp what lies outside, and NumPy need not be installed
    (step_0, epoch_0), (step_1, epoch_1) = knots[right - 1], knots[right]
    return epoch_0 + (step - step_0) * (epoch_1 - epoch_0) / (step_1 - step_0)
