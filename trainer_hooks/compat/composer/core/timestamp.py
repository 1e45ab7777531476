"""Timestamp: how far a training is, in Composer's units; it never changes."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from typing import Any

from trainer_hooks.compat.composer.core.times import Time, TimeUnit
from trainer_hooks.errors import OptionError

__all__ = ["Timestamp"]

_UNITS = {
    "iteration": TimeUnit.ITERATION,
    "epoch": TimeUnit.EPOCH,
    "batch": TimeUnit.BATCH,
    "sample": TimeUnit.SAMPLE,
    "token": TimeUnit.TOKEN,
    "epoch_in_iteration": TimeUnit.EPOCH,
    "token_in_iteration": TimeUnit.TOKEN,
    "batch_in_epoch": TimeUnit.BATCH,
    "sample_in_epoch": TimeUnit.SAMPLE,
    "token_in_epoch": TimeUnit.TOKEN,
}
_NONE = timedelta(0)


@dataclass(frozen=True, slots=True, eq=False)
class Timestamp:
    """What was trained up to a moment.

    It may be compared with a `Time` or a text, in whose unit it is then read.

    Attributes:
        iteration: iterations completed.
        epoch: epochs completed.
        batch: batches trained.
        sample: samples of those batches.
        token: tokens of those batches.
        epoch_in_iteration: epochs of the iteration under way.
        token_in_iteration: tokens of the iteration under way.
        batch_in_epoch: batches of the epoch under way.
        sample_in_epoch: samples of the epoch under way.
        token_in_epoch: tokens of the epoch under way.
        total_wct: wall time of the training, evaluations left out.
        iteration_wct: wall time of the iteration under way.
        epoch_wct: wall time of the epoch under way.
        batch_wct: wall time of the last batch.

    Raises:
        OptionError: a count has another unit than its place.
    """

    iteration: Time = field(default=Time(0, TimeUnit.ITERATION))
    epoch: Time = field(default=Time(0, TimeUnit.EPOCH))
    batch: Time = field(default=Time(0, TimeUnit.BATCH))
    sample: Time = field(default=Time(0, TimeUnit.SAMPLE))
    token: Time = field(default=Time(0, TimeUnit.TOKEN))
    epoch_in_iteration: Time = field(default=Time(0, TimeUnit.EPOCH))
    token_in_iteration: Time = field(default=Time(0, TimeUnit.TOKEN))
    batch_in_epoch: Time = field(default=Time(0, TimeUnit.BATCH))
    sample_in_epoch: Time = field(default=Time(0, TimeUnit.SAMPLE))
    token_in_epoch: Time = field(default=Time(0, TimeUnit.TOKEN))
    total_wct: timedelta = _NONE
    iteration_wct: timedelta = _NONE
    epoch_wct: timedelta = _NONE
    batch_wct: timedelta = _NONE

    def __post_init__(self) -> None:
        """Take numbers for the unit of their place."""
        for name, unit in _UNITS.items():
            time = Time.from_input(getattr(self, name), unit)
            if time.unit is not unit:
                raise OptionError(
                    f"Timestamp({name}={time!r}): must be in {unit.value!r}. Give a number."
                )
            object.__setattr__(self, name, time)

    def get(self, unit: str) -> Time:
        """Return how far it is in a unit.

        Raises:
            OptionError: the unit is unknown, or a share, of which only the trainer knows the whole.
        """
        wanted = TimeUnit(unit)
        if wanted is TimeUnit.SECOND:
            return Time(int(self.total_wct.total_seconds()), TimeUnit.SECOND)
        if wanted is TimeUnit.DURATION:
            raise OptionError(
                "Timestamp.get('dur'): a timestamp does not know how long the training is. Call "
                "state.get_elapsed_duration()."
            )
        time: Time = {
            TimeUnit.ITERATION: self.iteration,
            TimeUnit.EPOCH: self.epoch,
            TimeUnit.BATCH: self.batch,
            TimeUnit.SAMPLE: self.sample,
            TimeUnit.TOKEN: self.token,
        }[wanted]
        return time

    def copy(self, **changes: Any) -> Timestamp:
        """Return another one with some values replaced."""
        return replace(self, **{name: v for name, v in changes.items() if v is not None})

    def to_next_batch(
        self, samples: int | Time = 0, tokens: int | Time = 0, duration: timedelta | None = None
    ) -> Timestamp:
        """Return it one batch later."""
        spent = duration or _NONE
        return replace(
            self,
            batch=self.batch + 1,
            batch_in_epoch=self.batch_in_epoch + 1,
            sample=self.sample + samples,
            sample_in_epoch=self.sample_in_epoch + samples,
            token=self.token + tokens,
            token_in_epoch=self.token_in_epoch + tokens,
            token_in_iteration=self.token_in_iteration + tokens,
            total_wct=self.total_wct + spent,
            iteration_wct=self.iteration_wct + spent,
            epoch_wct=self.epoch_wct + spent,
            batch_wct=spent,
        )

    def to_next_epoch(self, duration: timedelta | None = None) -> Timestamp:
        """Return it with one more epoch completed."""
        spent = duration or _NONE
        return replace(
            self,
            epoch=self.epoch + 1,
            epoch_in_iteration=self.epoch_in_iteration + 1,
            batch_in_epoch=Time(0, TimeUnit.BATCH),
            sample_in_epoch=Time(0, TimeUnit.SAMPLE),
            token_in_epoch=Time(0, TimeUnit.TOKEN),
            total_wct=self.total_wct + spent,
            iteration_wct=self.iteration_wct + spent,
            epoch_wct=_NONE,
            batch_wct=_NONE,
        )

    def to_next_iteration(self, duration: timedelta | None = None) -> Timestamp:
        """Return it with one more iteration completed."""
        spent = duration or _NONE
        return replace(
            self,
            iteration=self.iteration + 1,
            epoch_in_iteration=Time(0, TimeUnit.EPOCH),
            token_in_iteration=Time(0, TimeUnit.TOKEN),
            batch_in_epoch=Time(0, TimeUnit.BATCH),
            sample_in_epoch=Time(0, TimeUnit.SAMPLE),
            token_in_epoch=Time(0, TimeUnit.TOKEN),
            total_wct=self.total_wct + spent,
            iteration_wct=_NONE,
            epoch_wct=_NONE,
            batch_wct=_NONE,
        )

    def state_dict(self) -> dict[str, Any]:
        """Return it as plain data: numbers, and wall times as they are."""
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: v.value if isinstance(v, Time) else v for name, v in found.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` returned; the one thing that changes a timestamp."""
        known = {one.name for one in fields(self)}
        for name in known & set(state):
            unit = _UNITS.get(name)
            value = state[name] if unit is None else Time(state[name], unit)
            object.__setattr__(self, name, value)

    # --- compared ---

    def __hash__(self) -> int:
        return hash(tuple(self.state_dict().values()))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Timestamp):
            return self.state_dict() == other.state_dict()
        if not isinstance(other, Time | str):
            return NotImplemented
        time = Time.from_input(other)
        return self.get(time.unit) == time

    def __lt__(self, other: Time | str) -> bool:
        return self.get(Time.from_input(other).unit) < other

    def __le__(self, other: Time | str) -> bool:
        return self.get(Time.from_input(other).unit) <= other

    def __gt__(self, other: Time | str) -> bool:
        return self.get(Time.from_input(other).unit) > other

    def __ge__(self, other: Time | str) -> bool:
        return self.get(Time.from_input(other).unit) >= other

    def __repr__(self) -> str:
        shown = (f"{name}={value!r}" for name, value in self.state_dict().items())
        return f"Timestamp({', '.join(shown)})"
