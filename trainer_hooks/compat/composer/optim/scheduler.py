"""Schedulers: functions of the state that return a factor of the learning rate."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol

from trainer_hooks.compat.composer.core.times import Time, TimeUnit
from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainer_hooks.compat.composer.core.state import State

    Span = str | Time

__all__ = [
    "ComposerScheduler",
    "ConstantScheduler",
    "CosineAnnealingScheduler",
    "CosineAnnealingWarmRestartsScheduler",
    "ExponentialScheduler",
    "LinearScheduler",
    "MultiStepScheduler",
    "PolynomialScheduler",
    "StepScheduler",
    "cosine",
    "in_batches",
    "share_of",
]


class ComposerScheduler(Protocol):
    """A function of the state and the scale of the schedule; it keeps nothing."""

    def __call__(self, state: State, ssr: float = 1.0) -> float:
        """Return a factor of the optimizer's learning rate."""
        ...


def in_batches(time: Span, state: State, ssr: float = 1.0) -> Time:
    """Return a time in a unit that is fine enough: epochs and shares of epochs in batches.

    Raises:
        OptionError: it is a wall time, or the loader has no length to reckon with.
    """
    given, longest = Time.from_input(time), state.max_duration
    if given.unit is TimeUnit.SECOND:
        raise OptionError(f"time {time!r} of a scheduler: must be no wall time. Give batches.")
    if given.unit is TimeUnit.DURATION:
        if longest is None:
            raise OptionError(
                f"time {time!r} of a scheduler: nobody says how long the training is. Pass "
                "max_duration."
            )
        if longest.unit is not TimeUnit.EPOCH:
            return Time(int(given.value * longest.value), longest.unit)
        return Time(int(given.value * _length(state, time) * longest.value), TimeUnit.BATCH)
    if given.unit is TimeUnit.EPOCH:
        given = Time(given.value * _length(state, time), TimeUnit.BATCH)
    return Time(int(given.value * ssr), given.unit)


def share_of(time: Time, state: State) -> float:
    """Return which part of a time is trained."""
    return float(state.timestamp.get(time.unit) / time)


def cosine(share: float, least: float) -> float:
    """Return half a wave of the cosine, from 1 to `least`."""
    within = min(max(share, 0.0), 1.0)
    return least + (1.0 - least) * (1 + math.cos(within * math.pi)) / 2


class StepScheduler:
    """Multiply by `gamma` after each `step_size`."""

    def __init__(self, step_size: Span, gamma: float = 0.1) -> None:
        self.step_size, self.gamma = step_size, gamma

    def __call__(self, state: State, ssr: float = 1.0) -> float:
        """Return the factor."""
        return float(self.gamma ** int(share_of(in_batches(self.step_size, state, ssr), state)))


class MultiStepScheduler:
    """Multiply by `gamma` at each of the `milestones`."""

    def __init__(self, milestones: Sequence[Span], gamma: float = 0.1) -> None:
        self.milestones, self.gamma = milestones, gamma

    def __call__(self, state: State, ssr: float = 1.0) -> float:
        """Return the factor."""
        passed = [state.timestamp >= in_batches(one, state, ssr) for one in self.milestones]
        return float(self.gamma ** sum(passed))


class ConstantScheduler:
    """Multiply by `alpha` until `t_max`."""

    def __init__(self, alpha: float = 1.0, t_max: Span = "1dur") -> None:
        self.alpha, self.t_max = alpha, t_max

    def __call__(self, state: State, ssr: float = 1.0) -> float:
        """Return the factor."""
        return self.alpha if state.timestamp < in_batches(self.t_max, state, ssr) else 1.0


class LinearScheduler:
    """Go from `alpha_i` to `alpha_f` in a line."""

    def __init__(self, alpha_i: float = 1.0, alpha_f: float = 0.0, t_max: Span = "1dur") -> None:
        self.alpha_i, self.alpha_f, self.t_max = alpha_i, alpha_f, t_max

    def __call__(self, state: State, ssr: float = 1.0) -> float:
        """Return the factor."""
        share = min(1.0, share_of(in_batches(self.t_max, state, ssr), state))
        return self.alpha_i + share * (self.alpha_f - self.alpha_i)


class ExponentialScheduler:
    """Multiply by `gamma` over each `decay_period`, smoothly."""

    def __init__(self, gamma: float, decay_period: Span = "1ep") -> None:
        self.gamma, self.decay_period = gamma, decay_period

    def __call__(self, state: State, ssr: float = 1.0) -> float:
        """Return the factor."""
        return float(self.gamma ** share_of(in_batches(self.decay_period, state, ssr), state))


class CosineAnnealingScheduler:
    """Go from 1 to `alpha_f` along half a wave of the cosine."""

    def __init__(self, t_max: Span = "1dur", alpha_f: float = 0.0) -> None:
        self.t_max, self.alpha_f = t_max, alpha_f

    def __call__(self, state: State, ssr: float = 1.0) -> float:
        """Return the factor."""
        return cosine(share_of(in_batches(self.t_max, state, ssr), state), self.alpha_f)


class CosineAnnealingWarmRestartsScheduler:
    """The same over and over: first in `t_0`, then in `t_mult` times the one before."""

    def __init__(self, t_0: Span, t_mult: float = 1.0, alpha_f: float = 0.0) -> None:
        self.t_0, self.t_mult, self.alpha_f = t_0, t_mult, alpha_f

    def __call__(self, state: State, ssr: float = 1.0) -> float:
        """Return the factor."""
        first = in_batches(self.t_0, state, ssr)
        now, length = state.timestamp.get(first.unit).value, first.value
        start: Any = 0
        while start + length <= now:
            start, length = start + length, int(self.t_mult * length)
            if length == 0:
                raise OptionError(
                    f"t_mult {self.t_mult!r} of CosineAnnealingWarmRestartsScheduler: the time "
                    "between two restarts has become nothing. Give a larger one."
                )
        return cosine((now - start) / length, self.alpha_f)


class PolynomialScheduler:
    """Go from 1 to `alpha_f` along a polynomial."""

    def __init__(self, power: float, t_max: Span = "1dur", alpha_f: float = 0.0) -> None:
        self.power, self.t_max, self.alpha_f = power, t_max, alpha_f

    def __call__(self, state: State, ssr: float = 1.0) -> float:
        """Return the factor."""
        share = min(1.0, share_of(in_batches(self.t_max, state, ssr), state))
        return float(self.alpha_f + (1 - share) ** self.power * (1.0 - self.alpha_f))


def _length(state: State, time: Span) -> int:
    if state.dataloader_len is None:
        raise OptionError(
            f"time {time!r} of a scheduler: the loader has no length, so it says nothing in "
            "batches. Give a number of batches."
        )
    return int(state.dataloader_len)
