"""RunPlan: the options that the loops go by."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainer_hooks.clock.timing import TimeUnit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainer_hooks.clock.schedules import DueCondition
    from trainer_hooks.clock.timing import Time

NEVER = sys.maxsize
"""An interval in steps that no run reaches."""


@dataclass(frozen=True, slots=True)
class RunPlan:
    """The Trainer's options that the loops go by, with their defaults filled in.

    Attributes:
        max_epochs: epochs to train, -1 for no end.
        min_epochs: epochs before a requested stop takes effect.
        max_steps: optimizer steps to train, -1 for no end.
        min_steps: optimizer steps before a requested stop takes effect.
        max_duration: length of the training in any unit, or None; one in epochs, iterations or
            steps is also in `max_epochs` and `max_steps`.
        max_seconds: wall time after which a Timer requests a stop, or None.
        limit_train_batches: training batches an epoch: a number (int) or a share (float).
        limit_val_batches: batches of each validation loader: a number or a share.
        limit_test_batches: batches of each test loader: a number or a share.
        limit_predict_batches: batches of each predict loader: a number or a share.
        overfit_batches: a number or share of training and validation batches, unshuffled; 0 is off.
        val_check_interval: a share of an epoch (float), a number of batches (int), a time, or a
            filter.
        check_val_every_n_epoch: epochs between validations; with None, batches are counted over
            all epochs.
        num_sanity_val_steps: validation batches to run before training; -1 for all.
        accumulate_grad_batches: batches of an accumulation window.
        microbatch_size: samples of the microbatches that a batch is split into, `"auto"`, or None
            for no split.
        gradient_clip_val: bound on the gradients, or None.
        gradient_clip_algorithm: `"norm"` or `"value"`.
        log_every_n_steps: accumulation windows between two flushes to the loggers, or `NEVER`.
        iteration_length: epochs of a cycle, or None.
        inference_mode: whether evaluation outside fit uses `torch.inference_mode`.
        detect_anomaly: whether autograd reports the operation that made a NaN.
        reload_dataloaders_every_n_epochs: epochs until the loaders are made anew; 0 for never.
        shares_loaders: whether each rank takes its shard of the loaders' samples.
        divides_outputs: whether hooks get a batch's loss divided by `accumulate_grad_batches`.
        validates_after_stop: whether an epoch that a `StopTraining` ends is validated.
    """

    max_epochs: int = 1000
    min_epochs: int = 0
    max_steps: int = -1
    min_steps: int = 0
    max_duration: Time | None = None
    max_seconds: float | None = None
    # the type decides: 1.0 is all batches, and 1 is a single one
    limit_train_batches: int | float = 1.0
    limit_val_batches: int | float = 1.0
    limit_test_batches: int | float = 1.0
    limit_predict_batches: int | float = 1.0
    overfit_batches: int | float = 0
    val_check_interval: int | float | Time | DueCondition = 1.0
    check_val_every_n_epoch: int | None = 1
    num_sanity_val_steps: int = 2
    accumulate_grad_batches: int = 1
    microbatch_size: int | str | None = None
    gradient_clip_val: float | None = None
    gradient_clip_algorithm: str = "norm"
    log_every_n_steps: int = 50
    iteration_length: int | None = None
    inference_mode: bool = True
    detect_anomaly: bool = False
    reload_dataloaders_every_n_epochs: int = 0
    divides_outputs: bool = False
    validates_after_stop: bool = True
    shares_loaders: bool = True

    def window_after(self, set_window: Mapping[str, int] | None) -> int:
        """Return the batches of an accumulation window once a resume has restored them.

        Args:
            set_window: the number that a hook set in the run that was cut, as `now`, and the one
                before, which must be this run's.
        """
        if set_window is None or set_window["before"] != self.accumulate_grad_batches:
            return self.accumulate_grad_batches
        return set_window["now"]

    @property
    def ends(self) -> tuple[tuple[TimeUnit, int | float], ...]:
        """The limits that end a training, whichever comes first: pairs of unit and number."""
        ends: list[tuple[TimeUnit, int | float]] = []
        if self.max_epochs >= 0:
            ends.append((TimeUnit.EPOCH, self.max_epochs))
        if self.max_steps >= 0:
            ends.append((TimeUnit.STEP, self.max_steps))
        if self.max_seconds is not None:
            ends.append((TimeUnit.SECOND, self.max_seconds))
        if self.max_duration is not None and self.max_duration.unit not in IN_OTHER_LIMITS:
            ends.append((self.max_duration.unit, self.max_duration.value))
        return tuple(ends)


IN_OTHER_LIMITS = frozenset({TimeUnit.ITERATION, TimeUnit.EPOCH, TimeUnit.STEP})
"""Units of a `max_duration` that is converted into `max_epochs` or `max_steps`."""
