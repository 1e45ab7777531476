"""Timekeeper: what a clock needs beyond the counters: wall times, and where epochs began."""

from __future__ import annotations

from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any

from trainer_hooks.clock.clock import Clock, Counts
from trainer_hooks.clock.progress import EpochStage
from trainer_hooks.clock.stopwatch import Stopwatch
from trainer_hooks.clock.timing import TimeUnit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainer_hooks.clock.progress import Progress
    from trainer_hooks.clock.timing import Time

__all__ = ["Timekeeper"]

_STARTS = ("epoch_start", "iteration_start", "validated")
_COUNTS_OF = {
    TimeUnit.STEP: "steps",
    TimeUnit.SAMPLE: "samples",
    TimeUnit.TOKEN: "tokens",
}
_TIMES = ("train_seconds", "eval_seconds")
_COUNTED = tuple(field.name for field in fields(Counts))


class Timekeeper:
    """Make snapshots of the clock of one training.

    Attributes:
        stopwatch: the wall times.
    """

    def __init__(self) -> None:
        self.stopwatch = Stopwatch()
        self._starts = {name: Counts() for name in _STARTS}

    def begin_epoch(self, progress: Progress) -> None:
        """Note that an epoch begins."""
        self._starts["epoch_start"] = self._counts(progress)

    def begin_iteration(self, progress: Progress) -> None:
        """Note that a cycle of epochs begins."""
        self._starts["iteration_start"] = self._counts(progress)

    def end_validation(self, progress: Progress) -> None:
        """Note that a validation inside fit is over."""
        self._starts["validated"] = self._counts(progress)
        self.stopwatch.end_evaluating()

    def is_passed(self, interval: Time, progress: Progress) -> bool:
        """Return whether it is time for another validation.

        By wall time it is so long after the last one, and by a count at each multiple.
        """
        now, last = self._counts(progress), self._starts["validated"]
        if interval.unit is TimeUnit.SECOND:
            passed = now.train_seconds + now.eval_seconds - last.train_seconds - last.eval_seconds
            return passed >= interval.value
        name, step = _COUNTS_OF[interval.unit], int(interval)
        done: tuple[int, int] = getattr(now, name), getattr(last, name)
        return done[0] // step > done[1] // step

    def read(
        self,
        progress: Progress,
        *,
        iteration_length: int | None,
        batches_per_epoch: int | float,
        ends: tuple[tuple[TimeUnit, int | float], ...],
    ) -> Clock:
        """Return how it stands now.

        Args:
            progress: the counters.
            iteration_length: epochs of a cycle, or None.
            batches_per_epoch: how many there will be; infinity where unknown.
            ends: what the training ends with.
        """
        stage = progress.stage
        is_open = stage is EpochStage.BATCHES
        is_over = not is_open and stage is not EpochStage.BETWEEN
        epochs = progress.epochs_completed + is_over
        self.stopwatch.is_read = True
        train, evaluation = self.stopwatch.read()
        return Clock(
            epochs // iteration_length if iteration_length else 0,
            epochs,
            progress.batches_completed,
            progress.steps_completed,
            progress.samples_completed,
            progress.tokens_completed,
            train,
            evaluation,
            self._starts["epoch_start"],
            self._starts["iteration_start"],
            batches_per_epoch,
            is_open,
            ends,
        )

    def state_dict(self) -> dict[str, Any]:
        """Return where the epoch and the iteration began, as plain data, without wall times."""
        return {
            name: {key: n for key, n in asdict(counts).items() if key not in _TIMES}
            for name, counts in self._starts.items()
        }

    def wall_times(self) -> dict[str, Any]:
        """Return the wall times, which are others in each run, as plain data."""
        starts = {
            name: {key: getattr(counts, key) for key in _TIMES}
            for name, counts in self._starts.items()
        }
        return {**self.stopwatch.state_dict(), **starts}

    def load_wall_times(self, times: Mapping[str, Any]) -> None:
        """Take back what `wall_times` returned; of an older checkpoint that is nothing."""
        self.stopwatch.load_state_dict(times)
        for name in _STARTS:
            self._starts[name] = _with_known(self._starts[name], times.get(name, {}))

    def load_state_dict(self, counts: Mapping[str, Any], progress: Progress) -> None:
        """Go on from a checkpoint.

        Args:
            counts: what `state_dict` returned; of an older checkpoint nothing, and then what
                happened in the epoch before the resume is known for batches alone.
            progress: its counters.
        """
        for name in _STARTS:
            self._starts[name] = _with_known(self._starts[name], counts.get(name, {}))
        if "epoch_start" not in counts:
            begun = progress.batches_completed - progress.batches_in_epoch
            self._starts["epoch_start"] = replace(self._counts(progress), batches=begun)

    def _counts(self, progress: Progress) -> Counts:
        return Counts(
            progress.epochs_completed,
            progress.batches_completed,
            progress.steps_completed,
            progress.samples_completed,
            progress.tokens_completed,
            *self.stopwatch.read(),
        )


def _with_known(counts: Counts, saved: Mapping[str, Any]) -> Counts:
    """Return counts with those numbers that a checkpoint knows."""
    return replace(counts, **{key: saved[key] for key in _COUNTED if key in saved})
