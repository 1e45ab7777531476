"""Composer's learning rate schedulers: functions of the state that return a factor."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol

from torch.optim.lr_scheduler import LambdaLR

from trainer_hooks._annotations import signature_of
from trainer_hooks._log import warn
from trainer_hooks.compat.composer.core.time import Time, TimeUnit
from trainer_hooks.errors import OptionError, TrainerHooksWarning

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch.optim.lr_scheduler import LRScheduler

    from trainer_hooks.compat.composer.core.state import State

    Span = str | Time

__all__ = [
    "ComposerScheduler",
    "ConstantScheduler",
    "ConstantWithWarmupScheduler",
    "CosineAnnealingScheduler",
    "CosineAnnealingWarmRestartsScheduler",
    "CosineAnnealingWithWarmupScheduler",
    "ExponentialScheduler",
    "LinearScheduler",
    "LinearWithWarmupScheduler",
    "MultiStepScheduler",
    "MultiStepWithWarmupScheduler",
    "PolynomialScheduler",
    "PolynomialWithWarmupScheduler",
    "StepScheduler",
    "compile_composer_scheduler",
    "cosine",
    "in_batches",
    "share_of",
]


class ComposerScheduler(Protocol):
    """A stateless function of the State and of the scale of the schedule."""

    def __call__(self, state: State, ssr: float = 1.0) -> float:
        """Return the factor of the optimizer's learning rate.

        Args:
            state: the state of the training.
            ssr: the scale schedule ratio, by which times are multiplied.
        """
        ...


def in_batches(time: Span, state: State, ssr: float = 1.0) -> Time:
    """Return a time of a schedule in batches, if it is in epochs or a share of epochs.

    Args:
        time: a time, or a text such as `"10ep"`.
        state: the state, for the length of the training and of its loader.
        ssr: the scale schedule ratio; a share of the training is not scaled.

    Raises:
        OptionError: it is a wall time, or the length of the training or loader is unknown.
    """
    parsed, longest = Time.from_input(time), state.max_duration
    if parsed.unit is TimeUnit.SECOND:
        raise OptionError(f"time {time!r} of a scheduler: must be no wall time. Give batches.")
    if parsed.unit is TimeUnit.DURATION:
        if longest is None:
            raise OptionError(
                f"time {time!r} of a scheduler: nobody says how long the training is. Pass "
                "max_duration."
            )
        if longest.unit is not TimeUnit.EPOCH:
            return Time(int(parsed.value * longest.value), longest.unit)
        return Time(int(parsed.value * _length(state, time) * longest.value), TimeUnit.BATCH)
    if parsed.unit is TimeUnit.EPOCH:
        # scaled in batches, as in Composer: half of one epoch would be no epoch at all
        parsed = Time(parsed.value * _length(state, time), TimeUnit.BATCH)
    return Time(int(parsed.value * ssr), parsed.unit)


def share_of(time: Time, state: State) -> float:
    """Return how much of a time is trained, as a ratio."""
    return float(state.timestamp.get(time.unit) / time)


def cosine(share: float, least: float) -> float:
    """Return a cosine that falls from 1 to `least`.

    Args:
        share: the position on the curve, from 0 to 1; clamped.
        least: the value at the end.
    """
    share = min(max(share, 0.0), 1.0)
    return least + (1.0 - least) * (1 + math.cos(share * math.pi)) / 2


class StepScheduler:
    """Multiply by `gamma` after each `step_size`."""

    def __init__(self, step_size: Span, gamma: float = 0.1) -> None:
        self.step_size, self.gamma = step_size, gamma

    def __call__(self, state: State, ssr: float = 1.0) -> float:
        """Return the factor of the learning rate."""
        return float(self.gamma ** int(share_of(in_batches(self.step_size, state, ssr), state)))


class MultiStepScheduler:
    """Multiply by `gamma` at each of the `milestones`."""

    def __init__(self, milestones: Sequence[Span], gamma: float = 0.1) -> None:
        self.milestones, self.gamma = milestones, gamma

    def __call__(self, state: State, ssr: float = 1.0) -> float:
        """Return the factor of the learning rate."""
        passed = [
            state.timestamp >= in_batches(milestone, state, ssr) for milestone in self.milestones
        ]
        return float(self.gamma ** sum(passed))


class ConstantScheduler:
    """Multiply by `alpha` until `t_max`."""

    def __init__(self, alpha: float = 1.0, t_max: Span = "1dur") -> None:
        self.alpha, self.t_max = alpha, t_max

    def __call__(self, state: State, ssr: float = 1.0) -> float:
        """Return the factor of the learning rate."""
        # alpha is for the beginning: afterwards the rate is the optimizer's own, as in Composer
        return self.alpha if state.timestamp < in_batches(self.t_max, state, ssr) else 1.0


class LinearScheduler:
    """Change linearly from `alpha_i` to `alpha_f` until `t_max`."""

    def __init__(self, alpha_i: float = 1.0, alpha_f: float = 0.0, t_max: Span = "1dur") -> None:
        self.alpha_i, self.alpha_f, self.t_max = alpha_i, alpha_f, t_max

    def __call__(self, state: State, ssr: float = 1.0) -> float:
        """Return the factor of the learning rate."""
        # not past alpha_f where the training is longer than t_max
        share = min(1.0, share_of(in_batches(self.t_max, state, ssr), state))
        return self.alpha_i + share * (self.alpha_f - self.alpha_i)


class ExponentialScheduler:
    """Decay exponentially, by `gamma` in each `decay_period`."""

    def __init__(self, gamma: float, decay_period: Span = "1ep") -> None:
        self.gamma, self.decay_period = gamma, decay_period

    def __call__(self, state: State, ssr: float = 1.0) -> float:
        """Return the factor of the learning rate."""
        return float(self.gamma ** share_of(in_batches(self.decay_period, state, ssr), state))


class CosineAnnealingScheduler:
    """Fall from 1 to `alpha_f` along a cosine until `t_max`."""

    def __init__(self, t_max: Span = "1dur", alpha_f: float = 0.0) -> None:
        self.t_max, self.alpha_f = t_max, alpha_f

    def __call__(self, state: State, ssr: float = 1.0) -> float:
        """Return the factor of the learning rate."""
        return cosine(share_of(in_batches(self.t_max, state, ssr), state), self.alpha_f)


class CosineAnnealingWarmRestartsScheduler:
    """Fall along a cosine repeatedly: first in `t_0`, then each time `t_mult` times as long."""

    def __init__(self, t_0: Span, t_mult: float = 1.0, alpha_f: float = 0.0) -> None:
        self.t_0, self.t_mult, self.alpha_f = t_0, t_mult, alpha_f

    def __call__(self, state: State, ssr: float = 1.0) -> float:
        """Return the factor of the learning rate."""
        first = in_batches(self.t_0, state, ssr)
        now, length = state.timestamp.get(first.unit).value, first.value
        start: Any = 0
        # the cycles are gone through from the first, as no state is kept between two calls
        while start + length <= now:
            # cut off, so that cycles that become shorter end at a length of 0
            start, length = start + length, int(self.t_mult * length)
            if length == 0:
                raise OptionError(
                    f"t_mult {self.t_mult!r} of CosineAnnealingWarmRestartsScheduler: the time "
                    "between two restarts has become nothing. Give a larger one."
                )
        return cosine((now - start) / length, self.alpha_f)


class PolynomialScheduler:
    """Fall from 1 to `alpha_f` along a polynomial until `t_max`."""

    def __init__(self, power: float, t_max: Span = "1dur", alpha_f: float = 0.0) -> None:
        self.power, self.t_max, self.alpha_f = power, t_max, alpha_f

    def __call__(self, state: State, ssr: float = 1.0) -> float:
        """Return the factor of the learning rate."""
        share = min(1.0, share_of(in_batches(self.t_max, state, ssr), state))
        return float(self.alpha_f + (1 - share) ** self.power * (1.0 - self.alpha_f))


def _length(state: State, time: Span) -> int:
    if state.dataloader_len is None:
        raise OptionError(
            f"time {time!r} of a scheduler: the loader has no length, so it says nothing in "
            "batches. Give a number of batches."
        )
    return int(state.dataloader_len)


class _Warmup:
    """A linear warmup from zero, and the time that is left after it.

    Args:
        t_warmup: how long the warmup is.
        top: the factor at its end.
        scales: whether the scale schedule ratio applies to the warmup.
        t_max: the end of the schedule; None if it has none of its own.
    """

    def __init__(self, t_warmup: Span, top: float, scales: bool, t_max: Span | None) -> None:
        self._rise = LinearScheduler(0.0, top, t_warmup)
        self._t_warmup, self._t_max, self._scales = t_warmup, t_max, scales

    def factor(self, state: State, ssr: float, after: Callable[[float], float]) -> float:
        """Return the factor of the warmup, or afterwards that of another function.

        Args:
            state: the state of the training.
            ssr: the scale schedule ratio.
            after: a function of the share of the remaining time that is done, from 0 to 1.
        """
        # without the ratio, as in Composer, also if the warmup's own rise is scaled below
        warmup = in_batches(self._t_warmup, state)
        whole = warmup if self._t_max is None else in_batches(self._t_max, state, ssr)
        if self._t_max is not None:
            _check_schedule_length(warmup, whole, state)
        if not warmup.value:
            warn(
                f"t_warmup {self._t_warmup!r} of a scheduler is no time at all in {warmup.unit!s}. "
                "Leave the warmup out, or give it in batches.",
                TrainerHooksWarning,
            )
        if state.timestamp < warmup:
            return self._rise(state, ssr) if self._scales else self._rise(state)
        rest = whole.value - warmup.value
        done = state.timestamp.get(warmup.unit).value - warmup.value
        # a schedule that is all warmup has nothing left to be shared
        return after(min(1.0, done / rest) if rest > 0 else 0.0)


class MultiStepWithWarmupScheduler:
    """Warm up, then multiply by `gamma` at each of the `milestones`."""

    def __init__(
        self,
        t_warmup: Span,
        milestones: Sequence[Span],
        gamma: float = 0.1,
        scale_warmup: bool = False,
    ) -> None:
        self._warmup = _Warmup(t_warmup, 1.0, scale_warmup, None)
        self._steps = MultiStepScheduler(milestones, gamma)

    def __call__(self, state: State, ssr: float = 1.0) -> float:
        """Return the factor of the learning rate."""
        # milestones count from the beginning of the training, also those inside the warmup
        return self._warmup.factor(state, ssr, lambda _: self._steps(state, ssr))


class LinearWithWarmupScheduler:
    """Warm up to `alpha_i`, then change linearly to `alpha_f`."""

    def __init__(
        self,
        t_warmup: Span,
        alpha_i: float = 1.0,
        alpha_f: float = 0.0,
        t_max: Span = "1dur",
        scale_warmup: bool = False,
    ) -> None:
        self.alpha_i, self.alpha_f = alpha_i, alpha_f
        self._warmup = _Warmup(t_warmup, alpha_i, scale_warmup, t_max)

    def __call__(self, state: State, ssr: float = 1.0) -> float:
        """Return the factor of the learning rate."""
        slope = self.alpha_f - self.alpha_i
        return self._warmup.factor(state, ssr, lambda share: self.alpha_i + share * slope)


class ConstantWithWarmupScheduler(LinearWithWarmupScheduler):
    """Warm up to `alpha`, then stay there."""

    def __init__(
        self, t_warmup: Span, alpha: float = 1.0, t_max: Span = "1dur", scale_warmup: bool = False
    ) -> None:
        super().__init__(t_warmup, alpha, alpha, t_max, scale_warmup)


class CosineAnnealingWithWarmupScheduler:
    """Warm up, then fall to `alpha_f` along a cosine."""

    def __init__(
        self, t_warmup: Span, t_max: Span = "1dur", alpha_f: float = 0.0, scale_warmup: bool = False
    ) -> None:
        self.alpha_f = alpha_f
        self._warmup = _Warmup(t_warmup, 1.0, scale_warmup, t_max)

    def __call__(self, state: State, ssr: float = 1.0) -> float:
        """Return the factor of the learning rate."""
        return self._warmup.factor(state, ssr, lambda share: cosine(share, self.alpha_f))


class PolynomialWithWarmupScheduler:
    """Warm up, then fall to `alpha_f` along a polynomial."""

    def __init__(
        self,
        t_warmup: Span,
        power: float = 2.0,
        t_max: Span = "1dur",
        alpha_f: float = 0.0,
        scale_warmup: bool = False,
    ) -> None:
        self.power, self.alpha_f = power, alpha_f
        self._warmup = _Warmup(t_warmup, 1.0, scale_warmup, t_max)

    def __call__(self, state: State, ssr: float = 1.0) -> float:
        """Return the factor of the learning rate."""
        height = 1.0 - self.alpha_f
        return self._warmup.factor(
            state, ssr, lambda share: float(self.alpha_f + (1 - share) ** self.power * height)
        )


def _check_schedule_length(warmup: Time, whole: Time, state: State) -> None:
    """Raise an error if a schedule ends before the training.

    Args:
        warmup: how long the warmup is.
        whole: the end of the schedule.
        state: the state of the training.

    Raises:
        OptionError: it does, or the warmup has another unit.
    """
    if warmup.unit is not whole.unit:
        raise OptionError(
            f"t_warmup {warmup!s}, t_max {whole!s} of a scheduler: must be of one unit. Give both "
            "in batches."
        )
    longest = state.max_duration
    if longest is None:
        return
    if longest.unit is TimeUnit.EPOCH and state.dataloader_len is not None:
        longest = in_batches(longest, state)
    # refused as in Composer: the rate would stay where the schedule ends
    if longest.unit is whole.unit and whole < longest:
        raise OptionError(
            f"t_max {whole!s} of a scheduler: the training is longer ({longest!s}). Give a t_max "
            "that is as long, or a shorter max_duration."
        )


def compile_composer_scheduler(
    scheduler: Callable[..., float], state: State, ssr: float = 1.0
) -> LRScheduler:
    """Return a scheduler of torch that takes its factor from one of Composer's.

    Args:
        scheduler: a function of the state, or of the state and the scale schedule ratio.
        state: the state, with the optimizer.
        ssr: the scale schedule ratio.

    Raises:
        OptionError: the ratio is not 1, and the scheduler takes the state alone.
    """
    # as in Composer, a lambda may take the state alone
    takes_scale = len(signature_of(scheduler).parameters) > 1
    if ssr != 1.0 and not takes_scale:
        raise OptionError(
            f"Trainer(scale_schedule_ratio={ssr}): {scheduler!r} takes the state alone. Let it "
            "take (state, ssr)."
        )

    def factor(_step: int) -> float:
        # by the state alone: a resume restores its timestamp, and no step() is counted here
        return scheduler(state, ssr) if takes_scale else scheduler(state)

    return LambdaLR(state.optimizers[0], factor)
