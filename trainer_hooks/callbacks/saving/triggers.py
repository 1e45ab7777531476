"""When a saver saves: every so many steps, every so often, or every so many epochs."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from trainer_hooks.callbacks.monitoring import (
    acts_at_train_epoch_end,
    check_count,
    decided_by_first,
)
from trainer_hooks.clock import Cue, Filter, TimeUnit, When, parse_time, parse_when
from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainer_hooks.callbacks.saving.ledger import Ledger
    from trainer_hooks.clock import Time
    from trainer_hooks.context import Trainer

__all__ = ["Schedule", "Triggers"]

_UNITS = tuple(unit for unit in TimeUnit if unit is not TimeUnit.ITERATION)
"""What an interval may be counted in; iterations end outside of the slots."""


@dataclass(frozen=True, slots=True)
class Triggers:
    """What sets off a save; one of the four, or none.

    Attributes:
        every_n_train_steps: optimizer steps between two saves, or 0.
        every_n_epochs: epochs between two saves, or 0.
        train_time_interval: the least time between two saves, or None.
        save_interval: what says at the end of batches and epochs, or None.
    """

    every_n_train_steps: int
    every_n_epochs: int
    train_time_interval: timedelta | None
    save_interval: Filter | None = None

    @classmethod
    def chosen(
        cls,
        steps: int | None,
        epochs: int | None,
        interval: str | Time | timedelta | None,
        where: str,
        when: When | int | None = None,
    ) -> Triggers:
        """Return the triggers for what the user chose; each epoch if that is nothing.

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
        asked = None
        if when is not None:
            asked = parse_when(when, "save_interval", where, units=_UNITS, bare=TimeUnit.EPOCH)
        chosen = [name for name, value in given.items() if value]
        chosen += ["train_time_interval"] if interval is not None else []
        chosen += ["save_interval"] if asked is not None else []
        if len(chosen) > 1:
            raise OptionError(
                f"triggers {', '.join(chosen)} of {where}: they exclude each other. Keep one, and "
                f"use a second {where} for the other."
            )
        if steps is None and epochs is None and interval is None and asked is None:
            return cls(0, 1, None)
        return cls(given["every_n_train_steps"], given["every_n_epochs"], interval, asked)


class Schedule:
    """Say at each of a saver's slots whether a save is due.

    Args:
        triggers: what sets off a save.
        at_train_epoch_end: whether the epoch trigger acts at the end of training epochs (True) or
            after validations (False); None to follow the trainer's validation settings.
    """

    def __init__(self, triggers: Triggers, at_train_epoch_end: bool | None) -> None:
        self.triggers = triggers
        self._choice = at_train_epoch_end
        self._at_train_epoch_end = True
        self._watches_batches = False
        self._batches_at_start: int | None = None
        self._cue = None if triggers.save_interval is None else Cue(triggers.save_interval)
        self.reset()

    def reset(self) -> None:
        """Forget what happened in an earlier training."""
        self._step_seen: int | None = None
        self._deferred_at: int | None = None
        if self._cue is not None:
            self._cue.forget()

    def start(self, trainer: Trainer) -> None:
        """Begin, or go on: the clock starts, counts go on from where they were."""
        self._at_train_epoch_end = acts_at_train_epoch_end(trainer, self._choice)
        by_batches = self.triggers.every_n_train_steps > 0
        by_time = self.triggers.train_time_interval is not None
        self._watches_batches = by_batches or by_time or not self._at_train_epoch_end
        if self._cue is not None:
            self._cue.start(trainer.clock)
            self._watches_batches = True
        self._last_time = _now(trainer)
        self._batches_at_start = trainer.progress.batches_completed
        if self._step_seen is None:
            self._step_seen = trainer.global_step

    def stop(self) -> None:
        """End with the run."""
        self._batches_at_start = None

    def has_trained(self, trainer: Trainer) -> bool:
        """Return whether anything was trained since this fit began."""
        start = self._batches_at_start
        return start is not None and trainer.progress.batches_completed > start

    def is_due_after_batch(self, trainer: Trainer, ledger: Ledger) -> bool | None:
        """Return whether a save is due in the slot after a batch, whose validation has run by then.

        It is None where saves are not set off in this slot.
        """
        if not self._watches_batches:
            return None
        if self._cue is not None:
            return self._is_asked_for(trainer) or None
        triggers, step = self.triggers, trainer.global_step
        if triggers.every_n_train_steps > 0:
            every, before, self._step_seen = triggers.every_n_train_steps, self._step_seen, step
            # one that is jumped over, as with two optimizers, counts
            return step // every != (before or 0) // every or None
        if triggers.train_time_interval is not None:
            is_new = step != ledger.books.saved_step
            return (is_new and self._is_time_up(triggers.train_time_interval, trainer)) or None
        is_turn = not self._at_train_epoch_end and _is_validated(trainer)
        return self._is_due_epoch(trainer) if is_turn else None

    def is_due_after_epoch(self, trainer: Trainer) -> bool | None:
        """Return whether a save is due in the slot after an epoch, or was put off until then.

        It is None where saves are not set off in this slot.
        """
        is_asked_for = self._is_asked_for(trainer)
        if self._deferred_at == trainer.progress.batches_completed or is_asked_for:
            return True
        is_turn = self._at_train_epoch_end or _is_validated(trainer)
        return self._is_due_epoch(trainer) if is_turn and self._goes_by_epochs else None

    def defer(self, trainer: Trainer) -> None:
        """Put off the save of this batch until the slot after its epoch."""
        self._deferred_at = trainer.progress.batches_completed

    def state_dict(self) -> dict[str, Any]:
        """Return what is under way as plain data."""
        state: dict[str, Any] = {"step_seen": self._step_seen, "deferred_at": self._deferred_at}
        return state if self._cue is None else {**state, "asked": self._cue.state_dict()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take back what was under way."""
        self._step_seen = state_dict.get("step_seen")
        self._deferred_at = state_dict.get("deferred_at")
        if self._cue is not None and "asked" in state_dict:
            self._cue.load_state_dict(state_dict["asked"])

    def _is_asked_for(self, trainer: Trainer) -> bool:
        """Return whether the interval says so now, which it is asked in each slot."""
        if self._cue is None:
            return False
        is_due = self._cue.is_due(trainer.clock)
        return decided_by_first(trainer, lambda: is_due)  # each counts its own samples and tokens

    def _is_time_up(self, interval: timedelta, trainer: Trainer) -> bool:
        """Return whether so much time has passed, and count anew if it has."""
        now = _now(trainer)
        is_up = now - self._last_time >= interval.total_seconds()
        if is_up:
            self._last_time = now
        return is_up

    def _is_due_epoch(self, trainer: Trainer) -> bool:
        every = self.triggers.every_n_epochs
        return every > 0 and (trainer.current_epoch + 1) % every == 0

    @property
    def _goes_by_epochs(self) -> bool:
        triggers = self.triggers
        by_batches = triggers.every_n_train_steps != 0 or self._cue is not None
        return not by_batches and triggers.train_time_interval is None


def _now(trainer: Trainer) -> float:
    """Return the seconds that the run goes by, which several processes agree on."""
    if trainer.world_size == 1:
        return time.monotonic()
    clock = trainer.clock
    return clock.train_seconds + clock.eval_seconds


def _is_validated(trainer: Trainer) -> bool:
    """Return whether a validation ran after the last batch."""
    return trainer.progress.validated_at == trainer.progress.batches_completed
