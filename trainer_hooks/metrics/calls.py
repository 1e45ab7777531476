"""The arguments of `log`: what they mean where, and that they stay the same for a name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.errors import MetricError
from trainer_hooks.metrics.scope import Scope
from trainer_hooks.metrics.slot import Slot, unknown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["new_slot", "require_same_call", "restored_call"]

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
_REDUCE_FX = tuple(_DEFAULTS).index("reduce_fx")


def new_slot(
    name: str,
    call: tuple[Any, ...],
    scope: Scope,
    suffix: str,
    others: Iterable[Slot],
    prefix: str = "",
) -> Slot:
    """Return what keeps the values of a name that is logged for the first time in a place.

    Args:
        name: the name.
        call: prog_bar, logger, on_step, on_epoch, reduce_fx, add_dataloader_idx, sync_dist,
            rank_zero_only, enable_graph.
        scope: the place.
        suffix: what is added to names, to tell several loaders apart.
        others: the slots of this name in the other places of the same epoch.
        prefix: what is put before names, to tell several evaluations apart.

    Raises:
        MetricError: it cannot be logged there, or not so.
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
    in_batch = scope is Scope.TRAIN_BATCH
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
    slot = Slot(
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
        _require_one_reduction(slot, other)
    return slot


def require_same_call(slot: Slot, call: tuple[Any, ...], scope: Scope) -> None:
    """Make sure that a name is logged with the arguments it was logged with at first.

    Raises:
        MetricError: it is not; the message says which argument changed.
    """
    changes = [
        f"{argument} was {before!r} and is {now!r}"
        for argument, before, now in zip(_DEFAULTS, slot.call, call, strict=False)
        # a lambda in a step is a new function each time, but the same code
        if before != now and getattr(before, "__code__", None) is not getattr(now, "__code__", 0)
    ]
    if changes:
        raise MetricError(
            f"log({slot.name!r}) was called with other arguments than before in {scope.value}: "
            f"{'; '.join(changes)}. They must stay the same. Log the other under a name of its own."
        )


def restored_call(saved: Sequence[Any]) -> tuple[Any, ...]:
    """Return the arguments that a checkpoint holds; older ones hold fewer."""
    call = [*saved, *list(_DEFAULTS.values())[len(saved) :]]
    call[_REDUCE_FX] = call[_REDUCE_FX] or unknown
    return tuple(call)


def _require_one_reduction(slot: Slot, other: Slot) -> None:
    """Make sure that the values of one name in one epoch are not reduced in two ways."""
    if slot.name != other.name or not (slot.on_epoch and other.on_epoch):
        return
    reductions = [one.reduce_fx for one in (other, slot)]
    if unknown in reductions or reductions[0] == reductions[1]:
        return
    if getattr(reductions[0], "__code__", None) is getattr(reductions[1], "__code__", 0):
        return
    raise MetricError(
        f"log({slot.name!r}, reduce_fx={slot.reduce_fx!r}) was called in an epoch in which "
        f"{slot.name!r} is also logged with reduce_fx={other.reduce_fx!r}: one would hide the "
        "other. Log it under a name of its own."
    )
