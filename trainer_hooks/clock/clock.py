"""Clock: how far a training had come at one moment, in every unit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from trainer_hooks.clock.timing import Time, TimeUnit

__all__ = ["Clock", "Counts"]


@dataclass(frozen=True, slots=True)
class Counts:
    """What was counted up to a moment: since then an epoch or an iteration is under way.

    Attributes:
        epochs: epochs completed.
        batches: batches completed.
        steps: optimizer steps.
        samples: samples of those batches.
        tokens: tokens of those batches.
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
    """A snapshot of what is completed; it never changes.

    An epoch counts as completed once its last batch is, so from `on_train_batches_end` on, and an
    iteration with its last epoch. What is counted within them stays until the next begins. Wall
    times are those of fit, resumed runs included, the sanity check left out.

    Attributes:
        iterations: cycles of `iteration_length` epochs; 0 without one.
        epochs: epochs.
        batches: batches, skipped ones included.
        steps: optimizer steps (`trainer.global_step`).
        samples: samples, as `module.num_samples(batch)` counts them.
        tokens: tokens, as `module.num_tokens(batch)` counts them.
        train_seconds: wall time of training without validations.
        eval_seconds: wall time of the validations.
        epoch_start: how it stood when the epoch began.
        iteration_start: how it stood when the iteration began.
        batches_per_epoch: how many there will be in this epoch; infinity where unknown.
        is_epoch_open: whether batches of an epoch may still come.
        ends: what the training ends with, whichever comes first: units and how many of them.
    """

    iterations: int = 0
    epochs: int = 0
    batches: int = 0
    steps: int = 0
    samples: int = 0
    tokens: int = 0
    train_seconds: float = 0.0
    eval_seconds: float = 0.0
    epoch_start: Counts = Counts()
    iteration_start: Counts = Counts()
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
        """Batches of the epoch."""
        return self.batches - self.epoch_start.batches

    @property
    def steps_in_epoch(self) -> int:
        """Optimizer steps of the epoch."""
        return self.steps - self.epoch_start.steps

    @property
    def samples_in_epoch(self) -> int:
        """Samples of the epoch."""
        return self.samples - self.epoch_start.samples

    @property
    def tokens_in_epoch(self) -> int:
        """Tokens of the epoch."""
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
        """Return how far the training had come, in a unit.

        Raises:
            OptionError: the unit is unknown.
        """
        known = Time(0, unit).unit
        number = self.count(known)
        return Time(float(number) if isinstance(number, Fraction) else number, known)

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
        """How much of the whole training is done, from 0.0 to 1.0; 0.0 where it has no end.

        Where several things can end it, it is by the one that is nearest to its end. Inside an
        epoch of a known length, the epoch counts in part.
        """
        return float(self._share())

    def _share(self) -> Fraction:
        shares = [_ratio(self._toward(unit), most) for unit, most in self.ends if most]
        if len(shares) < len(self.ends):
            return Fraction(1)  # an end of nothing is reached from the start
        return min(Fraction(1), max(shares, default=Fraction(0)))

    def _toward(self, unit: TimeUnit) -> int | float | Fraction:
        """Return the count toward an end; of epochs with the part of the one under way."""
        if unit is not TimeUnit.EPOCH or not self.is_epoch_open:
            return self.count(unit)
        length = self.batches_per_epoch
        if length == math.inf or not length:
            return self.epochs
        return self.epochs + min(Fraction(1), Fraction(self.batches_in_epoch, int(length)))


def _ratio(part: int | float | Fraction, whole: int | float) -> Fraction:
    if isinstance(part, int) and isinstance(whole, int):
        return Fraction(part, whole)  # which is several times quicker
    return Fraction(part) / Fraction(whole)


_COUNTERS = {
    TimeUnit.ITERATION: "iterations",
    TimeUnit.EPOCH: "epochs",
    TimeUnit.BATCH: "batches",
    TimeUnit.STEP: "steps",
    TimeUnit.SAMPLE: "samples",
    TimeUnit.TOKEN: "tokens",
}
