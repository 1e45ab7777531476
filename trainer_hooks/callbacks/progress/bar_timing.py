"""The timing of progress bars: rate, time left, and when a drawing is due."""

from __future__ import annotations

import math
from time import monotonic
from typing import TYPE_CHECKING

from trainer_hooks.clock.timing import TimeUnit

if TYPE_CHECKING:
    from trainer_hooks.context.context import Trainer

__all__ = ["Pace", "RunTimeEstimate", "last_batch_of_run"]

_TERMINAL_SECONDS = 0.1
_LOG_SECONDS = 10.0
_PAUSE = 19
"""The pause after a drawing as a multiple of its duration, so that drawing takes at most 5%."""


class Pace:
    """A count of batches with their timing, which decides in well under 1 us when to draw.

    Attributes:
        count: the number of batches done.
        drawn: the number of batches done at the last drawing.
        first: the number of batches done when the timing began; they are not in the rate.
        total: the number of batches, None if unknown.
        run_left: seconds until the end of the whole run, None if unknown or the same.
    """

    __slots__ = (
        "_due",
        "_every",
        "_interval",
        "_is_timed",
        "_since",
        "_special_count",
        "_spent",
        "count",
        "drawn",
        "first",
        "run_left",
        "total",
    )

    def __init__(self) -> None:
        self.stop()

    def stop(self) -> None:
        """Reset the counts; no drawing is due any more."""
        self._due = math.inf
        self._every = 1
        self._interval = 0.0
        self._special_count = -1
        self._is_timed = True
        self._since: float | None = None
        self._spent = 0.0
        self.total: int | None = None
        self.run_left: float | None = None
        self.count = self.drawn = self.first = 0

    def start(
        self,
        count: int,
        total: int | None,
        every: int,
        is_terminal: bool,
        is_resumed: bool = False,
    ) -> None:
        """Begin to count.

        On a terminal a drawing is due when 0.1 s have passed and `count` is a multiple of `every`,
        and at the last batch. In a log it is due when 10 s have passed.

        Args:
            count: the number of batches done already.
            total: the number of batches, None if unknown.
            every: draw at multiples of this number.
            is_terminal: whether bars are drawn on a terminal.
            is_resumed: whether to time from the first batch on: the time before it, in which the
                loader skips batches, is no training.
        """
        now = monotonic()
        # A restarted bar keeps its due time: short epochs would otherwise draw at every start.
        if self._due == math.inf:
            self._due = now + (0.0 if is_terminal else _LOG_SECONDS)
        self._interval = _TERMINAL_SECONDS if is_terminal else _LOG_SECONDS
        self._every = every
        self.total = total
        self._since, self._spent = now, 0.0
        self._is_timed = not is_resumed
        self.count = self.drawn = self.first = count
        # the count at which `is_due` does not read the clock first: the last batch, or after a
        # resume the first one, which starts the timing
        self._special_count = count + 1 if is_resumed else self._end

    @property
    def _end(self) -> int:
        return -1 if self.total is None or self._interval != _TERMINAL_SECONDS else self.total

    def is_due(self, count: int) -> bool:
        """Set the number of batches done; return whether to draw."""
        self.count = count
        if count == self._special_count:
            return self._is_timed or self._begin_timing()
        # This runs at every batch: two comparisons, and a clock reading at multiples of `every`.
        return not count % self._every and monotonic() >= self._due

    def _begin_timing(self) -> bool:
        """Start the timing with the batch just done; return whether to draw."""
        self._is_timed = True
        self._special_count = self._end
        self._since, self._spent, self.first = monotonic(), 0.0, self.count
        return self.count == self._special_count or monotonic() >= self._due

    @property
    def is_time(self) -> bool:
        """Whether enough time has passed since the last drawing."""
        return monotonic() >= self._due

    def note_drawing(self, began: float) -> None:
        """Record that a drawing took from `began` until now."""
        now = monotonic()
        self.drawn = self.count
        self._due = now + max(self._interval, _PAUSE * (now - began))

    def pause(self) -> None:
        """Stop the clock, as for a validation inside an epoch."""
        if self._since is not None:
            self._spent += monotonic() - self._since
            self._since = None

    def go_on(self) -> None:
        """Restart a stopped clock."""
        if self._since is None:
            self._since = monotonic()

    @property
    def seconds(self) -> float:
        """The seconds that the batches took, without the pauses."""
        return self._spent + (0.0 if self._since is None else monotonic() - self._since)

    @property
    def rate(self) -> float | None:
        """The batches per second, None while unknown."""
        seconds = self.seconds
        return (
            (self.count - self.first) / seconds if seconds > 0 < self.count - self.first else None
        )

    @property
    def seconds_left(self) -> float | None:
        """The seconds that the remaining batches will take at this rate, None while unknown."""
        rate = self.rate
        if self.total is None or rate is None or self.count >= self.total:
            return None
        return (self.total - self.count) / rate


class RunTimeEstimate:
    """An estimate of the whole run's time left, from its pace so far, validations included."""

    def __init__(self) -> None:
        self._began = 0.0
        self._share = 0.0

    def start(self, trainer: Trainer) -> None:
        """Begin to time a run; progress of earlier runs is not in the pace."""
        self._began, self._share = monotonic(), trainer.clock.share_done

    def left(self, trainer: Trainer) -> float | None:
        """Return the seconds left, None while unknown or if only this epoch is left."""
        is_last = trainer.current_epoch + 1 >= trainer.max_epochs >= 0
        if is_last or last_batch_of_run(trainer) <= trainer.num_training_batches:
            return None
        share = trainer.clock.share_done
        done = share - self._share
        return (1 - share) * (monotonic() - self._began) / done if done > 0 else None


def last_batch_of_run(trainer: Trainer) -> int | float:
    """Return the number of batches in the current epoch after which the run's limits end the epoch.

    Infinity where no limit ends it, or where that cannot be known, as with wall time.
    """
    progress, duration = trainer.progress, trainer.max_duration
    left = math.inf
    module = trainer.module
    # with manual optimization the number of steps in a batch is unknown
    if trainer.max_steps >= 0 and module is not None and module.automatic_optimization:
        windows = trainer.max_steps - progress.steps_completed
        left = windows * trainer.accumulate_grad_batches - progress.batches_in_window
    if duration is not None and duration.unit is TimeUnit.BATCH:
        left = min(left, int(duration) - progress.batches_completed)
    elif duration is not None and duration.unit is TimeUnit.SAMPLE:
        size = getattr(trainer.train_dataloader, "batch_size", None)
        if isinstance(size, int):
            left = min(left, math.ceil((int(duration) - progress.samples_completed) / size))
    return progress.batches_in_epoch + max(left, 0)
