"""The values of several processes brought together: one exchange for all names that are due."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks._log import warn
from trainer_hooks.errors import MetricError, TrainerHooksWarning
from trainer_hooks.metrics.calls import restored_call
from trainer_hooks.metrics.merging import keep_apart, merged, require_mergeable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from trainer_hooks.metrics.scope import Scope
    from trainer_hooks.metrics.slot import Slot
    from trainer_hooks.metrics.store import MetricStore
    from trainer_hooks.runtime import ProcessGroup

__all__ = ["SharedValues"]

Key = tuple[str, int, str]
"""Scope, loader and name."""

_HEAD = 2
_CELLS = 3
"""Of each name: a total, a weight, and whether there is a value."""


@dataclass(slots=True)
class _Layout:
    """What the processes exchange in one place.

    Attributes:
        known: for each process, the checksum of its names.
        keys: the names of all, in their order.
        descriptions: what they are logged with, for a process that does not log them.
        objects: those that are metric objects.
        room: numbers that one process sends.
    """

    known: list[float] = field(default_factory=list)
    keys: list[Key] = field(default_factory=list)
    descriptions: dict[Key, dict[str, Any]] = field(default_factory=dict)
    objects: frozenset[Key] = frozenset()
    room: int = _HEAD + 16 * _CELLS


class SharedValues:
    """Make the values of an epoch, or of a step, the same in all processes.

    What was logged with `sync_dist=True`, and metric objects, are reduced over all. The rest is
    rank 0's, so that whoever decides by a metric decides alike everywhere. Every process sends its
    totals and weights in one row of a size that all know; names are exchanged where they changed.

    Args:
        processes: all of them.
    """

    def __init__(self, processes: ProcessGroup) -> None:
        self._processes = processes
        self._layouts: dict[tuple[Scope, ...], _Layout] = {}
        self._told: set[str] = set()

    def keep_apart(self, metric: Any) -> None:
        """Let a metric object that is logged not talk to the other processes by itself."""
        keep_apart(metric)

    def share(self, store: MetricStore, scopes: tuple[Scope, ...]) -> None:
        """Bring together what was logged from `scopes` in the epoch under way."""
        slots = {
            (scope.name, index, name): slot
            for scope, index, name, slot in store.slots_by_place(scopes)
            if slot.on_epoch and slot.has_own_values and not slot.is_lost
        }
        layout, rows = self._exchange(scopes, slots)
        for place, key in enumerate(layout.keys):
            if store.slot_at(*key) is None:
                told = layout.descriptions[key]
                store.make_slot(*key, restored_call(told["call"]), told["suffix"])
            slot = store.slot_at(*key)
            if slot is not None and key not in layout.objects:
                start = _HEAD + _CELLS * place
                slot.shared = _reduced(slot, rows[:, start : start + _CELLS])
        if layout.objects:
            self._share_objects(store, slots, layout)

    def share_steps(self, store: MetricStore) -> None:
        """Bring together the last values of what is logged by step with `sync_dist`."""
        slots = {
            ("step", 0, slot.name): slot for slot in store.slots_in_use() if slot.is_synced_by_step
        }
        mine = {key[2]: float(slot.value) for key, slot in slots.items() if slot.value is not None}
        found = self._processes.gather(mine)
        for (_, _, name), slot in slots.items():
            values = torch.tensor([one[name] for one in found if name in one], dtype=torch.float64)
            if len(values) < len(found):
                ranks = [str(rank) for rank, one in enumerate(found) if name in one]
                self._tell(name, ranks)
            if not len(values):
                continue
            kind = slot.reduce_fx if isinstance(slot.reduce_fx, str) else "mean"
            reduced = getattr(torch, {"min": "amin", "max": "amax"}.get(kind, kind))(values)
            slot.replace_last(reduced.to(torch.float32))

    def _exchange(
        self, scopes: tuple[Scope, ...], slots: Mapping[Key, Slot]
    ) -> tuple[_Layout, Tensor]:
        layout = self._layouts.get(scopes)
        checksum = float(zlib.crc32(repr(sorted(slots)).encode()))
        if layout is None:
            layout = self._layouts[scopes] = _Layout()
        rows = self._processes.rows(_row(layout, slots, checksum), "logged values")
        if rows[:, 0].tolist() != layout.known:
            self._agree_on_names(layout, slots, rows[:, 0].tolist())
            rows = self._processes.rows(_row(layout, slots, checksum), "logged values")
        return layout, rows

    def _agree_on_names(
        self, layout: _Layout, slots: Mapping[Key, Slot], known: list[float]
    ) -> None:
        """Find out what is logged in other processes, and make room for all of it."""
        for key, slot in slots.items():
            _require_reducible(key[2], slot)
        mine = {key: (slot.description, slot.metric is not None) for key, slot in slots.items()}
        found = self._processes.gather(mine)
        everything = {key: told for one in reversed(found) for key, told in one.items()}
        layout.known, layout.keys = known, sorted(everything)
        layout.descriptions = {key: description for key, (description, _) in everything.items()}
        layout.objects = frozenset(key for key, (_, is_object) in everything.items() if is_object)
        layout.room = max(layout.room, _HEAD + _CELLS * len(layout.keys))
        for key, (description, _) in everything.items():
            ranks = [rank for rank, one in enumerate(found) if key in one]
            # a process whose share of a loader is empty logs nothing at all of it
            others = [
                rank
                for rank, one in enumerate(found)
                if key not in one and any(other[:2] == key[:2] for other in one)
            ]
            if others and not description["rank_zero_only"]:
                self._tell(key[2], list(map(str, ranks)))

    def _tell(self, name: str, ranks: list[str]) -> None:
        if name in self._told:
            return
        self._told.add(name)
        warn(
            f"log({name!r}) was called in rank {', '.join(ranks)} and not in the others: their "
            "values are left out of it. Log it in all processes, or pass rank_zero_only=True.",
            TrainerHooksWarning,
        )

    def _share_objects(
        self, store: MetricStore, slots: Mapping[Key, Slot], layout: _Layout
    ) -> None:
        """Let metric objects compute over the states of all processes, in one exchange."""
        states: dict[Key, Any] = {
            key: slots[key].metric.metric_state
            for key in sorted(layout.objects)
            if key in slots and hasattr(slots[key].metric, "metric_state")
        }
        counts = {key: getattr(slots[key].metric, "update_count", 0) for key in states}
        # what has no states is rank 0's
        values = {
            key: slots[key].local_value()
            for key in sorted(layout.objects)
            if key in slots and key not in states
        }
        found = self._processes.gather((states, counts, values))
        computed: dict[Key, Tensor] = {}
        for key in sorted(layout.objects):
            parts = [(one[0][key], one[1][key]) for one in found if key in one[0]]
            if key in states:
                computed[key] = merged(key[2], slots[key].metric, parts)
            elif not parts:
                computed[key] = next(one[2][key] for one in found if key in one[2])
        if any(len(one[0]) < len(found[0][0]) for one in found):
            computed = {**self._processes.broadcast(computed), **computed}
        for key, value in computed.items():
            slot = store.slot_at(*key)
            if slot is not None:
                slot.shared = value


def _row(layout: _Layout, slots: Mapping[Key, Slot], checksum: float) -> Tensor:
    row = torch.zeros(layout.room, dtype=torch.float64)
    row[0] = checksum
    numbers: list[float] = []
    for key in layout.keys:
        slot = slots.get(key)
        is_there = slot is not None and key not in layout.objects
        numbers += [*slot.own_parts(), 1.0] if slot is not None and is_there else [0.0, 0.0, 0.0]
    if numbers:
        row[_HEAD : _HEAD + len(numbers)] = torch.tensor(numbers, dtype=torch.float64)
    return row


def _reduced(slot: Slot, cells: Tensor) -> Tensor | None:
    """Return the value of a name from the total, weight and presence of each process."""
    there = cells[cells[:, 2] > 0]
    if not len(there):
        return None
    if not slot.is_synced:
        there = there[:1]
    totals, weights = there[:, 0], there[:, 1]
    if slot.reduce_fx == "mean":
        value = totals.sum() / weights.sum()
    elif slot.reduce_fx == "min":
        value = totals.min()
    elif slot.reduce_fx == "max":
        value = totals.max()
    else:
        value = totals.sum()
    return value.to(torch.float32)


def _require_reducible(name: str, slot: Slot) -> None:
    if slot.metric is not None:
        require_mergeable(name, slot)
    elif slot.is_synced and callable(slot.reduce_fx):
        raise MetricError(
            f"log({name!r}, sync_dist=True, reduce_fx=a function): the values of several processes "
            "are reduced by 'mean', 'sum', 'min' or 'max'. Use one of them, or log without "
            "sync_dist."
        )
