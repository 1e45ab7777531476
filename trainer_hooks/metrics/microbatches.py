"""Values that are logged for parts of a batch: as those of the whole, or taken back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainer_hooks.metrics.kept import FOR_THE_WHOLE
from trainer_hooks.metrics.objects import load_metric_states, metric_parts, metric_states

if TYPE_CHECKING:
    from torch import nn

    from trainer_hooks.metrics.slot import Slot
    from trainer_hooks.metrics.store import MetricStore

__all__ = ["LoggedBefore", "PartialValues"]


class PartialValues:
    """Make the step values of a batch's parts into one: what loggers and bars are given.

    The values of an epoch need nothing of it: each part counts there by its samples anyway.
    """

    def __init__(self, store: MetricStore) -> None:
        self._store = store
        for slot in store.slots_in_use():
            slot.news &= ~FOR_THE_WHOLE
        self._values: dict[str, list[tuple[Tensor, int]]] = {}

    def take(self, samples: int) -> None:
        """Note what one part logged."""
        for slot in self._store.slots_in_use():
            if slot.on_step and slot.news & FOR_THE_WHOLE:
                slot.news &= ~FOR_THE_WHOLE
                value = slot.value
                if value is not None:
                    self._values.setdefault(slot.name, []).append((value, samples))

    def combine(self) -> None:
        """Put one value in the place of those of several parts."""
        for slot in self._store.slots_in_use():
            parts = self._values.get(slot.name, ())
            if len(parts) > 1 and slot.metric is None:
                slot.replace_last(_reduced(slot, parts))


def _reduced(slot: Slot, parts: Any) -> Tensor:
    values = torch.stack([value for value, _ in parts])
    if callable(slot.reduce_fx):
        return slot.reduce_fx(values)
    if slot.reduce_fx == "mean":
        weights = values.new_tensor([samples for _, samples in parts])
        return (values * weights).sum() / weights.sum()
    if slot.reduce_fx == "sum":
        return values.sum()
    return values.min() if slot.reduce_fx == "min" else values.max()


class LoggedBefore:
    """What was logged before a batch, to go back to if the batch has to be run again."""

    def __init__(self, store: MetricStore, module: nn.Module) -> None:
        self._store = store
        self._slots = {s.name: (s.state_dict(), s.metric) for s in store.slots_in_use()}
        self._latest = store.latest()
        self._parts = metric_parts(module, {})
        self._objects = {
            name: {"values": _cloned(state["values"]), "updates": state["updates"]}
            for name, state in metric_states(self._parts).items()
        }

    def put_back(self, device: torch.device) -> None:
        """Forget what was logged since."""
        for slot in self._store.slots_in_use():
            if slot.name in self._slots:
                state, metric = self._slots[slot.name]
                slot.load_state_dict(state, device)
                slot.metric = metric
            else:
                slot.forget()
        self._store.set_latest(self._latest)
        load_metric_states(self._parts, self._objects, device)


def _cloned(values: dict[str, Any]) -> dict[str, Any]:
    """Return copies: metric objects add to their tensors in place."""
    return {
        name: value.clone() if isinstance(value, Tensor) else [item.clone() for item in value]
        for name, value in values.items()
    }
