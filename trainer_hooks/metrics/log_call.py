"""The arguments of `log`: their defaults in each scope, and the check that they stay the same."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from trainer_hooks.errors import MetricError
from trainer_hooks.metrics.aggregator import MetricAggregator, unknown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["LogScope", "new_aggregator", "require_same_call", "restored_call"]

_DEFAULTS = {
    "prog_bar": False,
    "logger": None,
    "on_step": None,
    "on_epoch": None,
    "reduce_fx": "mean",
    "add_dataloader_idx": True,
    "sync_dist": False,
    "rank_zero_only": False,
    "enable_graph": False,
}
"""The arguments of `log` after name and value, in the order of a call's tuple, with defaults."""

_REDUCE_FX = tuple(_DEFAULTS).index("reduce_fx")


class LogScope(Enum):
    """The part of a run from which `log` is called; it decides the defaults of its arguments."""

    CLOSED = "a place outside training and evaluation"
    TRAIN_BATCH = "a training batch"
    TRAIN_EPOCH = "the start or end of a training epoch"
    EVALUATION = "a validation or test batch"
    EVALUATION_EPOCH = "the start or end of validation or test"
    PREDICTION = "prediction"

    @property
    def is_of_batches(self) -> bool:
        """Whether the scope is inside a batch, so that single values can be logged by step."""
        return self in (LogScope.TRAIN_BATCH, LogScope.EVALUATION)

    @property
    def may_log(self) -> bool:
        """Whether `log` may be called in the scope."""
        return self not in (LogScope.CLOSED, LogScope.PREDICTION)

    @property
    def family(self) -> tuple[LogScope, ...]:
        """The scopes whose values are reduced together at the end of an epoch."""
        if self in (LogScope.TRAIN_BATCH, LogScope.TRAIN_EPOCH):
            return (LogScope.TRAIN_BATCH, LogScope.TRAIN_EPOCH)
        return (LogScope.EVALUATION, LogScope.EVALUATION_EPOCH)


def new_aggregator(
    name: str,
    call: tuple[Any, ...],
    scope: LogScope,
    suffix: str,
    others: Iterable[MetricAggregator],
    prefix: str = "",
) -> MetricAggregator:
    """Return an aggregator for a name that is logged for the first time in a scope.

    Args:
        name: the name.
        call: prog_bar, logger, on_step, on_epoch, reduce_fx, add_dataloader_idx, sync_dist,
            rank_zero_only, enable_graph.
        scope: the scope.
        suffix: added to names to distinguish several loaders.
        others: the aggregators of the scope's family, which may have the same name.
        prefix: put before names to distinguish several evaluations.

    Raises:
        MetricError: `log` may not be called in the scope, or not with these arguments.
    """
    prog_bar, logger, on_step, on_epoch, reduce_fx, add_dataloader_idx = call[:6]
    if not scope.may_log:
        raise MetricError(
            f"log({name!r}) was called in {scope.value}, where it has no meaning: call it "
            "from a training, validation or test step, or a hook of their batches or epochs."
        )
    if not isinstance(name, str):
        raise MetricError(f"log({name!r}): the name must be a string.")
    if add_dataloader_idx and "/dataloader_idx_" in name:
        raise MetricError(
            f"log({name!r}): '/dataloader_idx_N' is added to the name where there are several "
            "loaders. Leave it out, or pass add_dataloader_idx=False."
        )
    if on_step and not scope.is_of_batches:
        raise MetricError(
            f"log({name!r}, on_step=True) was called in {scope.value}: there is no step "
            "there. Leave on_step out."
        )
    in_batch = scope is LogScope.TRAIN_BATCH
    on_step = in_batch if on_step is None else on_step
    on_epoch = not in_batch if on_epoch is None else on_epoch
    if not on_step and not on_epoch:
        raise MetricError(
            f"log({name!r}) with on_step=False and on_epoch=False in {scope.value}: the "
            "value would go nowhere. Set one of them to True; in a training batch on_epoch is "
            "False unless said."
        )
    if isinstance(reduce_fx, str):
        reduce_fx = reduce_fx.lower()
    aggregator = MetricAggregator(
        prefix + name,
        call,
        reduce_fx=reduce_fx,
        on_step=bool(on_step),
        on_epoch=bool(on_epoch),
        prog_bar=prog_bar,
        logger=logger is not False,
        suffix=suffix if add_dataloader_idx else "",
    )
    for other in others:
        _require_same_reduction(aggregator, other)
    return aggregator


def require_same_call(aggregator: MetricAggregator, call: tuple[Any, ...], scope: LogScope) -> None:
    """Make sure that a name is logged with the same arguments as the first time.

    Raises:
        MetricError: it is not; the message says which argument changed.
    """
    changes = [
        f"{argument} was {before!r} and is {now!r}"
        for argument, before, now in zip(_DEFAULTS, aggregator.call, call, strict=False)
        # a lambda in a step is a new function each time, but the same code
        if before != now and getattr(before, "__code__", None) is not getattr(now, "__code__", 0)
    ]
    if changes:
        raise MetricError(
            f"log({aggregator.name!r}) was called with other arguments than before in "
            f"{scope.value}: {'; '.join(changes)}. They must stay the same. Log the other under a "
            "name of its own."
        )


def restored_call(saved: Sequence[Any]) -> tuple[Any, ...]:
    """Return the arguments of `log` from a checkpoint, where older ones hold fewer of them."""
    call = [*saved, *list(_DEFAULTS.values())[len(saved) :]]
    call[_REDUCE_FX] = call[_REDUCE_FX] or unknown
    return tuple(call)


def _require_same_reduction(aggregator: MetricAggregator, other: MetricAggregator) -> None:
    """Make sure that the values of one name in one epoch are not reduced in two ways."""
    if aggregator.name != other.name or not (aggregator.on_epoch and other.on_epoch):
        return
    reductions = [one.reduce_fx for one in (other, aggregator)]
    if unknown in reductions or reductions[0] == reductions[1]:
        return
    if getattr(reductions[0], "__code__", None) is getattr(reductions[1], "__code__", 0):
        return
    raise MetricError(
        f"log({aggregator.name!r}, reduce_fx={aggregator.reduce_fx!r}) was called in an epoch in "
        f"which {aggregator.name!r} is also logged with reduce_fx={other.reduce_fx!r}: one would "
        "hide the other. Log it under a name of its own."
    )
