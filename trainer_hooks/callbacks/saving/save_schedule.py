"""The schedule of a saver: save every N steps, after an interval, or every N epochs."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from trainer_hooks.callbacks.base import decide_on_rank_zero
from trainer_hooks.callbacks.monitored_metric import acts_at_train_epoch_end
from trainer_hooks.callbacks.option_checks import check_count
from trainer_hooks.clock.schedules import DueCondition, DueTracker, When, parse_when
from trainer_hooks.clock.timing import TimeUnit, parse_time
from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainer_hooks.callbacks.saving.saver import SaveTracker
    from trainer_hooks.clock.timing import Time
    from trainer_hooks.context.context import Trainer

__all__ = ["SaveSchedule", "SaveTriggers"]

_UNITS = tuple(unit for unit in TimeUnit if unit is not TimeUnit.ITERATION)
"""What an interval may be counted in; iterations end outside of the slots."""


@dataclass(frozen=True, slots=True)
class SaveTriggers:
    """The condition for a save; at most one of the four is set.

    Attributes:
        every_n_train_steps: optimizer steps between two saves, or 0.
        every_n_epochs: epochs between two saves, or 0.
        train_time_interval: the least time between two saves, or None.
        save_interval: a filter of the clock, evaluated at the end of batches and epochs, or None.
    """

    every_n_train_steps: int
    every_n_epochs: int
    train_time_interval: timedelta | None
    save_interval: DueCondition | None = None

    @classmethod
    def chosen(
        cls,
        steps: int | None,
        epochs: int | None,
        interval: str | Time | timedelta | None,
        where: str,
        when: When | int | None = None,
    ) -> SaveTriggers:
        """Return the triggers for the user's arguments; without any, a save after each epoch.

        Raises:
            OptionError: a number is negative, the interval is no wall time, or two are chosen.
        """
        given = {
            name: 0 if count is None else check_count(name, count, where)
            for name, count in (("every_n_train_steps", steps), ("every_n_epochs", epochs))
        }
        if interval is not None:
            units = (TimeUnit.SECOND,)
            least = parse_time(interval, "train_time_interval", where, units=units)
            interval = timedelta(seconds=least.value)
        condition = None
        if when is not None:
            condition = parse_when(when, "save_interval", where, units=_UNITS, bare=TimeUnit.EPOCH)
        chosen = [name for name, value in given.items() if value]
        chosen += ["train_time_interval"] if interval is not None else []
        chosen += ["save_interval"] if condition is not None else []
        if len(chosen) > 1:
            raise OptionError(
                f"triggers {', '.join(chosen)} of {where}: they exclude each other. Keep one, and "
                f"use a second {where} for the other."
            )
        if steps is None and epochs is None and interval is None and condition is None:
            return cls(0, 1, None)
        return cls(given["every_n_train_steps"], given["every_n_epochs"], interval, condition)


class SaveSchedule:
    """Decide at each of a saver's slots whether a save is due.

    Args:
        triggers: the condition for a save.
        at_train_epoch_end: whether the epoch trigger acts at the end of training epochs (True) or
            after validations (False); None to follow the trainer's validation settings.
    """

    def __init__(self, triggers: SaveTriggers, at_train_epoch_end: bool | None) -> None:
        self.triggers = triggers
        self._choice = at_train_epoch_end
        self._at_train_epoch_end = True
        self._watches_batches = False
        self._batches_at_start: int | None = None
        self._interval = (
            None if triggers.save_interval is None else DueTracker(triggers.save_interval)
        )
        # not `every_n_epochs > 0`: with every trigger at 0 an epoch still moves `save_last`
        self._is_by_epochs = (
            triggers.every_n_train_steps == 0
            and triggers.train_time_interval is None
            and triggers.save_interval is None
        )
        self.reset()

    def reset(self) -> None:
        """Reset for a new training."""
        self._step_seen: int | None = None
        self._deferred_at: int | None = None
        if self._interval is not None:
            self._interval.forget()

    def start(self, trainer: Trainer) -> None:
        """Start the clock of a fit; counts continue from a resumed fit's."""
        self._at_train_epoch_end = acts_at_train_epoch_end(trainer, self._choice)
        by_batches = self.triggers.every_n_train_steps > 0
        by_time = self.triggers.train_time_interval is not None
        self._watches_batches = by_batches or by_time or not self._at_train_epoch_end
        if self._interval is not None:
            self._interval.start(trainer.clock)
            self._watches_batches = True
        self._last_time = _now(trainer)
        self._batches_at_start = trainer.progress.batches_completed
        if self._step_seen is None:
            self._step_seen = trainer.global_step

    def stop(self) -> None:
        """Record that the run has ended."""
        self._batches_at_start = None

    def has_trained(self, trainer: Trainer) -> bool:
        """Return whether a batch was trained since this fit began."""
        start = self._batches_at_start
        return start is not None and trainer.progress.batches_completed > start

    def is_due_after_batch(self, trainer: Trainer, tracker: SaveTracker) -> bool | None:
        """Decide which checkpoints to save after a batch and its validation.

        True: a checkpoint that may be among the best, and the last one. False: only the last one,
        if `save_last` is set. None: nothing.
        """
        if not self._watches_batches:
            return None
        if self._interval is not None:
            return self._is_interval_due(trainer) or None
        triggers, step = self.triggers, trainer.global_step
        if triggers.every_n_train_steps > 0:
            every, before, self._step_seen = triggers.every_n_train_steps, self._step_seen, step
            # not `step % every`: two optimizers count two steps a batch, and may jump over one
            return step // every != (before or 0) // every or None
        if triggers.train_time_interval is not None:
            is_new = step != tracker.ranking.saved_step
            return (is_new and self._is_time_up(triggers.train_time_interval, trainer)) or None
        is_turn = not self._at_train_epoch_end and _is_validated(trainer)
        return self._is_due_epoch(trainer) if is_turn else None

    def is_due_after_epoch(self, trainer: Trainer) -> bool | None:
        """Decide which checkpoints to save after an epoch, also those deferred to it.

        The values mean the same as those of `is_due_after_batch`.
        """
        is_interval_due = self._interval is not None and self._is_interval_due(trainer)
        if self._deferred_at == trainer.progress.batches_completed or is_interval_due:
            return True
        is_turn = self._at_train_epoch_end or _is_validated(trainer)
        return self._is_due_epoch(trainer) if is_turn and self._is_by_epochs else None

    def defer(self, trainer: Trainer) -> None:
        """Defer the save of this batch to the slot after its epoch."""
        self._deferred_at = trainer.progress.batches_completed

    def state_dict(self) -> dict[str, Any]:
        """Return the trigger's counts and a deferred save as plain data."""
        state: dict[str, Any] = {"step_seen": self._step_seen, "deferred_at": self._deferred_at}
        return state if self._interval is None else {**state, "asked": self._interval.state_dict()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore the trigger's counts and a deferred save."""
        self._step_seen = state_dict.get("step_seen")
        self._deferred_at = state_dict.get("deferred_at")
        if self._interval is not None and "asked" in state_dict:
            self._interval.load_state_dict(state_dict["asked"])

    def _is_interval_due(self, trainer: Trainer) -> bool:
        """Return whether `save_interval` is due; ask once in each slot, since it keeps counts."""
        if self._interval is None:
            return False
        is_due = self._interval.is_due(trainer.clock)  # on every rank, to keep its counts
        # ranks see different numbers of samples and tokens, and all must save at the same moment
        return decide_on_rank_zero(trainer, lambda: is_due)

    def _is_time_up(self, interval: timedelta, trainer: Trainer) -> bool:
        """Return whether the interval has passed, and restart it if so."""
        now = _now(trainer)
        is_up = now - self._last_time >= interval.total_seconds()
        if is_up:
            self._last_time = now
        return is_up

    def _is_due_epoch(self, trainer: Trainer) -> bool:
        every = self.triggers.every_n_epochs
        return every > 0 and (trainer.current_epoch + 1) % every == 0


def _now(trainer: Trainer) -> float:
    """Return the clock of the schedule in seconds; of several ranks the one that they share."""
    if trainer.world_size == 1:
        return time.monotonic()
    # monotonic clocks differ between machines, and ranks must agree on when a save is due
    clock = trainer.clock
    return clock.train_seconds + clock.eval_seconds


def _is_validated(trainer: Trainer) -> bool:
    """Return whether a validation ran after the last batch."""
    return trainer.progress.validated_at == trainer.progress.batches_completed
