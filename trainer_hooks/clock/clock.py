"""Clock: an immutable reading of a training's progress and wall time, and its makers."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from trainer_hooks.clock.progress import EpochStage
from trainer_hooks.clock.timing import Time, TimeUnit

if TYPE_CHECKING:
    from collections.abc import Mapping
    from fractions import Fraction

    from trainer_hooks.clock.progress import Progress


@dataclass(frozen=True, slots=True)
class ClockCounts:
    """The counts at the moment when an epoch or a cycle began, or a validation ended.

    Attributes:
        epochs: completed epochs.
        batches: completed batches.
        steps: optimizer steps.
        samples: samples of the completed batches.
        tokens: tokens of the completed batches.
        train_seconds: wall time of training without validations.
        eval_seconds: wall time of the validations.
    """

    epochs: int = 0
    batches: int = 0
    steps: int = 0
    samples: int = 0
    tokens: int = 0
    train_seconds: float = 0.0
    eval_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Clock:
    """A reading of the counts of a training and of its wall time; it never changes.

    An epoch counts as completed once its last batch is, so from `on_train_batches_end` on, and an
    iteration with its last epoch. The counts within an epoch or iteration stay until the next one
    begins. Wall times are those of fit, over all resumed runs, without the sanity check.

    Attributes:
        iterations: cycles of `iteration_length` epochs; 0 without one.
        epochs: completed epochs.
        batches: completed batches, skipped ones included.
        steps: optimizer steps (`trainer.global_step`).
        samples: samples, as `module.num_samples(batch)` counts them.
        tokens: tokens, as `module.num_tokens(batch)` counts them.
        train_seconds: wall time of training without validations.
        eval_seconds: wall time of the validations.
        epoch_start: the counts when the epoch began.
        iteration_start: the counts when the iteration began.
        batches_per_epoch: number of batches of this epoch; infinity where unknown.
        is_epoch_open: whether batches of the epoch may still come.
        ends: the limits that end the training, whichever comes first: pairs of unit and number.
    """

    iterations: int = 0
    epochs: int = 0
    batches: int = 0
    steps: int = 0
    samples: int = 0
    tokens: int = 0
    train_seconds: float = 0.0
    eval_seconds: float = 0.0
    epoch_start: ClockCounts = ClockCounts()
    iteration_start: ClockCounts = ClockCounts()
    batches_per_epoch: int | float = math.inf
    is_epoch_open: bool = False
    ends: tuple[tuple[TimeUnit, int | float], ...] = ()

    @property
    def total_seconds(self) -> float:
        """Wall time of training and validations."""
        return self.train_seconds + self.eval_seconds

    # --- within the epoch ---

    @property
    def batches_in_epoch(self) -> int:
        """Batches since the start of the epoch."""
        return self.batches - self.epoch_start.batches

    @property
    def steps_in_epoch(self) -> int:
        """Optimizer steps since the start of the epoch."""
        return self.steps - self.epoch_start.steps

    @property
    def samples_in_epoch(self) -> int:
        """Samples since the start of the epoch."""
        return self.samples - self.epoch_start.samples

    @property
    def tokens_in_epoch(self) -> int:
        """Tokens since the start of the epoch."""
        return self.tokens - self.epoch_start.tokens

    @property
    def train_seconds_in_epoch(self) -> float:
        """Wall time of the epoch without validations."""
        return self.train_seconds - self.epoch_start.train_seconds

    @property
    def eval_seconds_in_epoch(self) -> float:
        """Wall time of the epoch's validations."""
        return self.eval_seconds - self.epoch_start.eval_seconds

    @property
    def total_seconds_in_epoch(self) -> float:
        """Wall time of the epoch."""
        return self.train_seconds_in_epoch + self.eval_seconds_in_epoch

    # --- within the iteration ---

    @property
    def epochs_in_iteration(self) -> int:
        """Epochs of the iteration."""
        return self.epochs - self.iteration_start.epochs

    @property
    def batches_in_iteration(self) -> int:
        """Batches of the iteration."""
        return self.batches - self.iteration_start.batches

    @property
    def steps_in_iteration(self) -> int:
        """Optimizer steps of the iteration."""
        return self.steps - self.iteration_start.steps

    @property
    def samples_in_iteration(self) -> int:
        """Samples of the iteration."""
        return self.samples - self.iteration_start.samples

    @property
    def tokens_in_iteration(self) -> int:
        """Tokens of the iteration."""
        return self.tokens - self.iteration_start.tokens

    @property
    def train_seconds_in_iteration(self) -> float:
        """Wall time of the iteration without validations."""
        return self.train_seconds - self.iteration_start.train_seconds

    @property
    def eval_seconds_in_iteration(self) -> float:
        """Wall time of the iteration's validations."""
        return self.eval_seconds - self.iteration_start.eval_seconds

    @property
    def total_seconds_in_iteration(self) -> float:
        """Wall time of the iteration."""
        return self.train_seconds_in_iteration + self.eval_seconds_in_iteration

    # --- in a unit ---

    def time(self, unit: str) -> Time:
        """Return the progress of the training in a unit.

        Raises:
            OptionError: the unit is unknown.
        """
        # time knows the units, and words the error
        checked = Time(0, unit).unit
        number = self.count(checked)
        # a Time holds a float; conditions compare `count`, which is exact
        return Time(number if isinstance(number, int) else float(number), checked)

    def count(self, unit: TimeUnit) -> int | float | Fraction:
        """Return the number of `time(unit)`; a share as an exact fraction."""
        if unit is TimeUnit.DURATION:
            return self._share()
        if unit is TimeUnit.SECOND:
            return self.total_seconds
        number: int = getattr(self, _COUNTERS[unit])
        return number

    @property
    def share_done(self) -> float:
        """The completed share of the whole training, from 0.0 to 1.0; 0.0 if it has no end.

        If several limits can end it, the one that is nearest counts. Inside an epoch of known
        length, the epoch counts in part.
        """
        return float(self._share())

    def _share(self) -> Fraction:
        # fractions, as floats may be late: 0.3 // 0.1 is 2.0, where every('0.1dur') is due
        from fractions import Fraction  # here, as most trainings read no share

        shares = [_ratio(self._toward(unit), most) for unit, most in self.ends if most]
        if len(shares) < len(self.ends):
            return Fraction(1)  # a limit of 0 is reached from the start
        return min(Fraction(1), max(shares, default=Fraction(0)))

    def _toward(self, unit: TimeUnit) -> int | float | Fraction:
        """Return the count toward a limit; in epochs with the completed part of the current one."""
        # an epoch whose batches are done is counted in `epochs`: its part would count it twice
        if unit is not TimeUnit.EPOCH or not self.is_epoch_open:
            return self.count(unit)
        length = self.batches_per_epoch
        # a Fraction takes neither infinity nor a zero below the line
        if length == math.inf or not length:
            return self.epochs
        from fractions import Fraction

        return self.epochs + min(Fraction(1), Fraction(self.batches_in_epoch, int(length)))


def _ratio(part: int | float | Fraction, whole: int | float) -> Fraction:
    from fractions import Fraction

    if isinstance(part, int) and isinstance(whole, int):
        return Fraction(part, whole)  # several times faster than a division of Fractions
    return Fraction(part) / Fraction(whole)


_COUNTERS = {
    TimeUnit.ITERATION: "iterations",
    TimeUnit.EPOCH: "epochs",
    TimeUnit.BATCH: "batches",
    TimeUnit.STEP: "steps",
    TimeUnit.SAMPLE: "samples",
    TimeUnit.TOKEN: "tokens",
}


class Stopwatch:
    """Measure the wall time of training and of the validations inside it, over resumed runs.

    It is started and stopped where those begin and end, so that a batch costs nothing.

    Attributes:
        agreed: the seconds that all ranks use, until they agree on others; None with one rank.
        is_read: whether a clock reading was made of the times, so that the ranks must agree.
    """

    def __init__(self) -> None:
        self._train = 0.0
        self._eval = 0.0
        self._since: float | None = None
        self._is_evaluating = False
        self.agreed: tuple[float, float] | None = None
        self.is_read = False

    @property
    def is_running(self) -> bool:
        """Whether a training has begun and not ended: not in its set-up or sanity check."""
        return self._since is not None

    def start(self) -> None:
        """Count the time as that of training from now on."""
        self._restart(is_evaluating=False)

    def start_evaluating(self) -> None:
        """Count the time as that of a validation from now on, if the stopwatch runs."""
        # it does not run in the sanity check, whose time counts nowhere
        if self._since is not None:
            self._restart(is_evaluating=True)

    def end_evaluating(self) -> None:
        """Count the time as that of training again, if the stopwatch runs."""
        if self._since is not None:
            self._restart(is_evaluating=False)

    def stop(self) -> None:
        """Stop counting time."""
        self._train, self._eval = self.measure()
        # between runs the ranks exchange no times, so each shows its own
        self._since, self.agreed = None, None

    def read(self) -> tuple[float, float]:
        """Return the seconds of training without validations, and of validations."""
        return self.measure() if self.agreed is None else self.agreed

    def measure(self) -> tuple[float, float]:
        """Return the seconds of training and of validations that this rank has measured."""
        if self._since is None:
            return self._train, self._eval
        # monotonic, as the wall clock may be set back while the training runs
        passed = time.monotonic() - self._since
        if self._is_evaluating:
            return self._train, self._eval + passed
        return self._train + passed, self._eval

    def restore(self, train_seconds: float, eval_seconds: float) -> None:
        """Restore saved seconds."""
        self._train, self._eval = train_seconds, eval_seconds
        if self._since is not None:
            # count from the restore on: the saved seconds hold the time before
            self._since = time.monotonic()

    def _restart(self, *, is_evaluating: bool) -> None:
        self._train, self._eval = self.measure()
        self._since = time.monotonic()
        self._is_evaluating = is_evaluating


_STARTS = ("epoch_start", "iteration_start", "validated")
_COUNTS_OF = {
    TimeUnit.STEP: "steps",
    TimeUnit.SAMPLE: "samples",
    TimeUnit.TOKEN: "tokens",
}
_TIMES = ("train_seconds", "eval_seconds")
_COUNTED = tuple(field.name for field in fields(ClockCounts))


class Timekeeper:
    """Make clock readings of one training.

    Attributes:
        stopwatch: measures the wall times.
    """

    def __init__(self) -> None:
        self.stopwatch = Stopwatch()
        self._starts = {name: ClockCounts() for name in _STARTS}

    def begin_epoch(self, progress: Progress) -> None:
        """Remember the counts at the start of an epoch."""
        self._starts["epoch_start"] = self._counts(progress)

    def begin_iteration(self, progress: Progress) -> None:
        """Remember the counts at the start of a cycle of epochs."""
        self._starts["iteration_start"] = self._counts(progress)

    def end_validation(self, progress: Progress) -> None:
        """Remember the counts at the end of a validation inside fit."""
        self._starts["validated"] = self._counts(progress)
        self.stopwatch.end_evaluating()

    def is_passed(self, interval: Time, progress: Progress) -> bool:
        """Return whether the next validation inside fit is due.

        Args:
            interval: the interval; a wall time counts from the last validation, and a count is due
                at each of its multiples.
            progress: the counters.
        """
        now, last = self._counts(progress), self._starts["validated"]
        if interval.unit is TimeUnit.SECOND:
            passed = now.train_seconds + now.eval_seconds - last.train_seconds - last.eval_seconds
            return passed >= interval.value
        name, step = _COUNTS_OF[interval.unit], int(interval)
        # multiples are compared, as a batch rarely ends on one of samples or tokens
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
        """Return a clock reading.

        Args:
            progress: the counters.
            iteration_length: epochs of a cycle, or None.
            batches_per_epoch: number of batches of the epoch; infinity where unknown.
            ends: the limits that end the training: pairs of unit and number.
        """
        is_open = progress.stage is EpochStage.BATCHES
        # an epoch counts as completed from its last batch on, before `progress` counts it
        is_over = not is_open and progress.stage is not EpochStage.BETWEEN
        epochs = progress.epochs_completed + is_over
        # from now on the ranks exchange their times, which costs a collective now and then
        self.stopwatch.is_read = True
        train, evaluation = self.stopwatch.read()
        # by position: in the order of Clock's fields
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
        """Return the remembered counts as plain data, without wall times."""
        return {
            name: {key: getattr(counts, key) for key in _COUNTED if key not in _TIMES}
            for name, counts in self._starts.items()
        }

    def wall_times(self) -> dict[str, Any]:
        """Return the wall times as plain data; they are apart because they differ in each run."""
        starts = {
            name: {key: getattr(counts, key) for key in _TIMES}
            for name, counts in self._starts.items()
        }
        # this rank's own times: those that the ranks agreed on are a reading of them
        return {**dict(zip(_TIMES, self.stopwatch.measure(), strict=True)), **starts}

    def load_wall_times(self, times: Mapping[str, Any]) -> None:
        """Restore the times that `wall_times` returned; those of a file of Lightning are empty."""
        self.stopwatch.restore(*(float(times.get(name, 0.0)) for name in _TIMES))
        for name in _STARTS:
            self._starts[name] = _with_known(self._starts[name], times.get(name, {}))

    def load_state_dict(self, counts: Mapping[str, Any], progress: Progress) -> None:
        """Restore the remembered counts.

        Args:
            counts: the state that `state_dict` returned; empty for a file of Lightning, of which
                only the batches since the start of the epoch are known then.
            progress: the restored counters.
        """
        for name in _STARTS:
            self._starts[name] = _with_known(self._starts[name], counts.get(name, {}))
        if "epoch_start" not in counts:
            begun = progress.batches_completed - progress.batches_in_epoch
            self._starts["epoch_start"] = replace(self._counts(progress), batches=begun)

    def _counts(self, progress: Progress) -> ClockCounts:
        return ClockCounts(
            progress.epochs_completed,
            progress.batches_completed,
            progress.steps_completed,
            progress.samples_completed,
            progress.tokens_completed,
            *self.stopwatch.read(),
        )


def _with_known(counts: ClockCounts, saved: Mapping[str, Any]) -> ClockCounts:
    """Return counts with the numbers that a checkpoint holds."""
    # a file of Lightning lacks all of the names, and one of a later version may hold others
    restored = {key: type(getattr(counts, key))(saved[key]) for key in _COUNTED if key in saved}
    return replace(counts, **restored)
