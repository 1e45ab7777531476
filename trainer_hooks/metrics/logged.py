"""Logged values as they come: taken in on the hot path, and read when somebody reads."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor

from trainer_hooks.metrics.calls import new_slot, require_same_call
from trainer_hooks.metrics.scope import Scope
from trainer_hooks.metrics.slot import FOR_READERS, Metric, Slot
from trainer_hooks.metrics.values import floats, number
from trainer_hooks.runtime import first_tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


__all__ = ["LoggedValues"]

_ENABLE_GRAPH = 8
"""The place of `enable_graph` in the arguments of a call."""


class _Others(Protocol):
    """What brings the values of several processes together."""

    def keep_apart(self, metric: Any) -> None: ...

    def share(self, store: Any, scopes: tuple[Scope, ...]) -> None: ...

    def share_steps(self, store: Any) -> None: ...


class LoggedValues:
    """Take logged values in and keep what callbacks, loggers and progress bars read.

    Nothing is copied from the device to the host until `floats` is asked for, and what is read is
    brought up to date when it is read.

    Attributes:
        scope: from where `log` is called now.
        batch: the batch in work, of which the batch size is found where it is not given.
        prefix: what is put before the names of what is logged now.
        others: brings values of several processes together; None in one.
        shares_steps: whether a single value of some process is to be reduced over all of them.
    """

    def __init__(self) -> None:
        self.scope = Scope.CLOSED
        self.batch: Any = None
        self.prefix = ""
        self._callback: dict[str, Tensor] = {}
        self._logged: dict[str, Tensor] = {}
        self._bar: dict[str, Tensor] = {}
        self._tables: dict[tuple[Scope, int], dict[str, Slot]] = {}
        self._slots: dict[str, Slot] = {}
        self._entered: tuple[Scope, dict[str, Slot]] = (self.scope, self._slots)
        self._suffix = ""
        self._keeps: Callable[[str], bool] | None = None
        self._is_held = False
        self.others: _Others | None = None
        self.shares_steps = False
        self._sized: Any = None
        self._size = 1

    def enter(
        self,
        scope: Scope,
        dataloader_idx: int = 0,
        *,
        suffix: str = "",
        is_held: bool = False,
        keeps: Callable[[str], bool] | None = None,
    ) -> None:
        """Say from where `log` is called from now on.

        Args:
            scope: the place.
            dataloader_idx: the evaluation loader's number; each has values of its own.
            suffix: what is added to names, to tell several loaders apart.
            is_held: whether what is logged is not read before the epoch's end.
            keeps: which names are kept; what is logged under others goes nowhere.
        """
        self._publish_news()
        self._is_held = is_held
        self.scope = scope
        self.batch = None
        self._suffix = suffix
        self._keeps = keeps
        self._slots = self._tables.setdefault((scope, dataloader_idx), {})
        self._entered = (scope, self._slots)

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Refuse `log` meanwhile, as in hooks that may be called from anywhere."""
        before, self.scope, self._slots = (self.scope, self._slots), Scope.CLOSED, {}
        try:
            yield
        finally:
            self.scope, self._slots = before

    def log(
        self, name: str, value: Any, call: tuple[Any, ...], batch_size: int | None = None
    ) -> None:
        """Take in one value.

        Args:
            name: its name.
            value: a number, a tensor with one element, or a metric object.
            call: `log`'s other arguments, as `calls.new_slot` takes them.
            batch_size: its weight in the mean; found in the batch where None.

        Raises:
            MetricError: it cannot be logged here, is no such value, or was logged otherwise before.
        """
        slot = self._slots.get(name)
        if slot is None or slot.call != call:
            slot = self._slot_for(name, call)
        if batch_size is None:
            batch_size = 1
            if slot.is_weighted:
                batch_size = self._size if self._sized is self.batch else self._found_size()
        if isinstance(value, Tensor):
            if call[_ENABLE_GRAPH]:
                slot.add_attached(value, batch_size)
            else:
                slot.add(value, batch_size)
        elif isinstance(value, int | float):
            slot.add_number(float(value), batch_size)
        elif isinstance(value, Metric):
            if self.others is not None:
                self.others.keep_apart(value)
            slot.take(value)
        else:
            slot.add_number(number(slot.name, value), batch_size)

    @property
    def callback_metrics(self) -> dict[str, Tensor]:
        """The latest value of every name, as 0-dim tensors; may be written to."""
        self._publish_news()
        return self._callback

    @property
    def logged_metrics(self) -> dict[str, Tensor]:
        """The latest values of what goes to loggers, under the names that they get."""
        self._publish_news()
        return self._logged

    @property
    def progress_bar_metrics(self) -> dict[str, float]:
        """What a progress bar shows. Asking copies it from the device."""
        self._publish_news()
        return floats(self._bar)

    def slots_in_use(self) -> list[Slot]:
        """Return what keeps the values of the place that is logged from now."""
        return list(self._slots.values())

    def slots_by_place(self, scopes: Sequence[Scope]) -> Iterator[tuple[Scope, int, str, Slot]]:
        """Give what keeps the values that were logged from `scopes`, with where and as what."""
        for (scope, index), slots in list(self._tables.items()):
            if scope in scopes:
                for name, slot in list(slots.items()):
                    yield scope, index, name, slot

    def slot_at(self, scope: str, index: int, name: str) -> Slot | None:
        """Return what keeps the values of a name in a place, if there is any."""
        if scope not in Scope.__members__:
            return None
        return self._tables.get((Scope[scope], index), {}).get(name)

    def make_slot(
        self, scope: str, index: int, name: str, call: tuple[Any, ...], suffix: str
    ) -> None:
        """Make what keeps the values of a name that another process logs."""
        place = Scope[scope]
        others = self._slots_of(*place.family)
        made = new_slot(name, call, place, suffix, others, self.prefix)
        self._tables.setdefault((place, index), {})[name] = made

    def _slots_of(self, *scopes: Scope) -> list[Slot]:
        return [
            slot
            for (scope, _), slots in self._tables.items()
            if scope in scopes
            for slot in slots.values()
        ]

    def _slot_for(self, name: str, call: tuple[Any, ...]) -> Slot:
        """Return what keeps the values of a name that is new, or logged with other arguments."""
        slot = self._slots.get(name)
        if slot is not None and not slot.is_waiting:
            require_same_call(slot, call, self.scope)
            return slot
        others = [one for one in self._slots_of(*self.scope.family) if one is not slot]
        made = new_slot(name, call, self.scope, self._suffix, others, self.prefix)
        if slot is not None:
            made.take_over(slot)
        if self._keeps is not None and not self._keeps(name):
            made.mute()
        self._slots[name] = made
        return made

    def _publish_news(self) -> None:
        """Put what was logged since the last time where callbacks and bars find it."""
        scope, slots = self._entered
        if self._is_held:
            return
        for slot in slots.values():
            if not slot.news & FOR_READERS:
                continue
            slot.news &= ~FOR_READERS
            if not scope.is_of_batches:
                if slot.has_values:
                    self._publish_epoch(slot, slot.reduce())
                continue
            value = slot.value if slot.on_step else None
            if value is None:
                continue
            if scope is Scope.TRAIN_BATCH:
                self._callback[slot.name] = self._callback[slot.step_key] = value
            self._publish(slot, slot.step_key, value)

    def _publish_epoch(self, slot: Slot, value: Tensor) -> None:
        """Make an epoch's value known."""
        self._callback[slot.name] = self._callback[slot.epoch_key] = value
        self._publish(slot, slot.epoch_key, value)

    def _publish(self, slot: Slot, key: str, value: Tensor) -> None:
        if slot.logger:
            self._logged[key] = value
        if slot.prog_bar:
            self._bar[key] = value

    def _found_size(self) -> int:
        tensor = first_tensor(self.batch)
        self._size = tensor.shape[0] if tensor is not None else 1
        self._sized = self.batch
        return self._size
