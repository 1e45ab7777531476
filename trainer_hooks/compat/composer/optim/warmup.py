"""Schedulers that begin with a rise from nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks._log import warn
from trainer_hooks.compat.composer.core.times import Time, TimeUnit
from trainer_hooks.compat.composer.optim.scheduler import (
    LinearScheduler,
    MultiStepScheduler,
    cosine,
    in_batches,
)
from trainer_hooks.errors import OptionError, TrainerHooksWarning

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trainer_hooks.compat.composer.core.state import State

    Span = str | Time

__all__ = [
    "ConstantWithWarmupScheduler",
    "CosineAnnealingWithWarmupScheduler",
    "LinearWithWarmupScheduler",
    "MultiStepWithWarmupScheduler",
    "PolynomialWithWarmupScheduler",
]


class _Warmup:
    """The rise, and what is left of the time after it."""

    def __init__(self, t_warmup: Span, top: float, scales: bool, t_max: Span | None) -> None:
        self._rise = LinearScheduler(0.0, top, t_warmup)
        self._t_warmup, self._t_max, self._scales = t_warmup, t_max, scales

    def factor(self, state: State, ssr: float, after: Callable[[float], float]) -> float:
        """Return the factor of the rise, or that of `after` by the share of the time since."""
        warmup = in_batches(self._t_warmup, state)
        whole = warmup if self._t_max is None else in_batches(self._t_max, state, ssr)
        if self._t_max is not None:
            _check(warmup, whole, state)
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
        return after(min(1.0, done / rest) if rest > 0 else 0.0)


class MultiStepWithWarmupScheduler:
    """Rise, then multiply by `gamma` at each of the `milestones`."""

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
        """Return the factor."""
        return self._warmup.factor(state, ssr, lambda _: self._steps(state, ssr))


class LinearWithWarmupScheduler:
    """Rise to `alpha_i`, then go to `alpha_f` in a line."""

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
        """Return the factor."""
        slope = self.alpha_f - self.alpha_i
        return self._warmup.factor(state, ssr, lambda share: self.alpha_i + share * slope)


class ConstantWithWarmupScheduler(LinearWithWarmupScheduler):
    """Rise to `alpha`, and stay."""

    def __init__(
        self,
        t_warmup: Span,
        alpha: float = 1.0,
        t_max: Span = "1dur",
        scale_warmup: bool = False,
    ) -> None:
        super().__init__(t_warmup, alpha, alpha, t_max, scale_warmup)


class CosineAnnealingWithWarmupScheduler:
    """Rise, then go to `alpha_f` along half a wave of the cosine."""

    def __init__(
        self,
        t_warmup: Span,
        t_max: Span = "1dur",
        alpha_f: float = 0.0,
        scale_warmup: bool = False,
    ) -> None:
        self.alpha_f = alpha_f
        self._warmup = _Warmup(t_warmup, 1.0, scale_warmup, t_max)

    def __call__(self, state: State, ssr: float = 1.0) -> float:
        """Return the factor."""
        return self._warmup.factor(state, ssr, lambda share: cosine(share, self.alpha_f))


class PolynomialWithWarmupScheduler:
    """Rise, then go to `alpha_f` along a polynomial."""

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
        """Return the factor."""
        height = 1.0 - self.alpha_f
        return self._warmup.factor(
            state, ssr, lambda share: float(self.alpha_f + (1 - share) ** self.power * height)
        )


def _check(warmup: Time, whole: Time, state: State) -> None:
    """Make sure that a schedule is defined for as long as the training is.

    Raises:
        OptionError: it is shorter, or the rise has another unit.
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
    if longest.unit is whole.unit and whole < longest:
        raise OptionError(
            f"t_max {whole!s} of a scheduler: the training is longer ({longest!s}). Give a t_max "
            "that is as long, or a shorter max_duration."
        )
