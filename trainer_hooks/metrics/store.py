"""Every logged value of a run: taken in on the hot path, reduced and handed on where it is due."""

from __future__ import annotations

from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainer_hooks._log import warn
from trainer_hooks.errors import MetricError, TrainerHooksWarning
from trainer_hooks.metrics.slot import Metric, Slot, unknown
from trainer_hooks.metrics.values import floats, kept, number
from trainer_hooks.runtime.transfer import first_tensor

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["MetricStore", "Scope", "floats"]

_ARGUMENTS = ("prog_bar", "logger", "on_step", "on_epoch", "reduce_fx", "add_dataloader_idx")
_REDUCE_FX = _ARGUMENTS.index("reduce_fx")


class Scope(Enum):
    """From where `log` is called, which decides what it means."""

    CLOSED = "a place outside training and evaluation"
    TRAIN_BATCH = "a training batch"
    TRAIN_EPOCH = "the start or end of a training epoch"
    EVALUATION = "validation or test"
    PREDICTION = "prediction"


class MetricStore:
    """Take logged values in and keep what callbacks, loggers and progress bars read.

    Nothing is copied from the device to the host until `floats` is asked for.

    Attributes:
        callback_metrics: the latest value of every name, as 0-dim tensors; may be written to.
        logged_metrics: the values that the loggers were given last.
        scope: from where `log` is called now.
        batch: the batch in work, of which the batch size is found where it is not given.
    """

    def __init__(self) -> None:
        self.callback_metrics: dict[str, Tensor] = {}
        self.logged_metrics: dict[str, Tensor] = {}
        self.scope = Scope.CLOSED
        self.batch: Any = None
        self._bar: dict[str, Tensor] = {}
        self._tables: dict[tuple[Scope, int], dict[str, Slot]] = {}
        self._slots: dict[str, Slot] = {}
        self._suffix = ""
        self._sized: Any = None
        self._size = 1

    def begin_run(self) -> None:
        """Let nothing of an earlier run show in the progress bar or in an evaluation."""
        self._bar = {}
        self.drop(Scope.EVALUATION)

    def enter(self, scope: Scope, dataloader_idx: int = 0, *, suffix: str = "") -> None:
        """Say from where `log` is called from now on.

        Args:
            scope: the place.
            dataloader_idx: the evaluation loader's number; each has values of its own.
            suffix: what is added to names, to tell several loaders apart.
        """
        self.scope = scope
        self.batch = None
        self._suffix = suffix
        self._slots = self._tables.setdefault((scope, dataloader_idx), {})

    def log(
        self,
        name: str,
        value: Any,
        call: tuple[bool, bool | None, bool | None, bool | None, Any, bool],
        batch_size: int | None = None,
        enable_graph: bool = False,
    ) -> None:
        """Take in one value.

        Args:
            name: its name.
            value: a number, a tensor with one element, or a metric object.
            call: `prog_bar, logger, on_step, on_epoch, reduce_fx, add_dataloader_idx`.
            batch_size: its weight in the mean; found in the batch where None.
            enable_graph: keep the value attached to the autograd graph.

        Raises:
            MetricError: it cannot be logged here, is no such value, or was logged otherwise before.
        """
        slot = self._slots.get(name)
        if slot is None:
            slot = self._register(name, call)
        elif slot.call != call and slot.is_waiting:
            restored, slot = slot, self._register(name, call)
            slot.take_over(restored)
        elif slot.call != call:
            _require_same_call(slot, call, self.scope)
        if isinstance(value, Tensor):
            value = kept(name, value, enable_graph)
        else:
            value = self._taken(slot, value)
            if value is None:
                return
        if slot.on_epoch and slot.metric is None:
            if batch_size is None:
                batch_size = self._found_batch_size() if slot.reduce_fx == "mean" else 1
            slot.add(value, batch_size)
            if self.scope is Scope.TRAIN_EPOCH:
                self._publish(slot, value)
        if slot.on_step:
            slot.value = value
            slot.is_new = True
            if self.scope is Scope.TRAIN_BATCH:
                self.callback_metrics[name] = value
                self.callback_metrics[slot.step_key] = value
                if slot.prog_bar:
                    self._bar[slot.step_key] = value

    def step_metrics(self) -> dict[str, Tensor]:
        """Return the single values for the loggers that are new since this was last asked."""
        metrics = {}
        for slot in self._slots.values():
            if slot.is_new:
                slot.is_new = False
                if slot.logger and slot.value is not None:
                    metrics[slot.step_key] = slot.value
        return metrics

    def close_epoch(self, *scopes: Scope) -> dict[str, Tensor]:
        """Reduce what was logged in the epoch, begin a new one, and return the loggers' share."""
        metrics = {}
        for (scope, _), slots in self._tables.items():
            if scope not in scopes:
                continue
            for slot in slots.values():
                if slot.is_lost:
                    warn(_lost(slot.name), TrainerHooksWarning)
                elif slot.on_epoch and slot.has_values:
                    value = slot.reduce()
                    self._publish(slot, value)
                    if slot.logger:
                        metrics[slot.epoch_key] = value
                slot.reset()
        return metrics

    def refresh(self, scope: Scope) -> None:
        """Put the present reductions of the epoch under way where callbacks find them."""
        for (place, _), slots in self._tables.items():
            if place is scope:
                for slot in slots.values():
                    if slot.on_epoch and slot.has_values and not slot.is_lost:
                        self._publish(slot, slot.reduce())

    def epoch_values(self, scope: Scope, dataloader_idx: int) -> dict[str, Tensor]:
        """Return the present reductions of one evaluation loader, by name."""
        slots = self._tables.get((scope, dataloader_idx), {})
        return {s.epoch_key: s.reduce() for s in slots.values() if s.on_epoch and s.has_values}

    def drop(self, *scopes: Scope) -> None:
        """Forget what was logged from `scopes`, as after a sanity check."""
        for key in [key for key in self._tables if key[0] in scopes]:
            for slot in self._tables.pop(key).values():
                slot.reset()

    @contextmanager
    def isolated(self) -> Iterator[None]:
        """Put everything back afterwards that an evaluation inside changes."""
        metrics, bar = dict(self.callback_metrics), dict(self._bar)
        try:
            yield
        finally:
            self.drop(Scope.EVALUATION)
            self.callback_metrics.clear()
            self.callback_metrics.update(metrics)
            self._bar = bar

    @property
    def progress_bar_metrics(self) -> dict[str, float]:
        """What a progress bar shows. Asking copies it from the device."""
        return floats(self._bar)

    def state_dict(self, parts: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values that a resumed run must find: latest ones and unfinished sums.

        Args:
            parts: the module's parts by name, among which metric objects are found again.
        """
        names = {id(part): name for name, part in parts.items()}
        tables = {
            "callback_metrics": self.callback_metrics,
            "logged_metrics": self.logged_metrics,
            "bar": self._bar,
        }
        # users may have written plain numbers there
        latest = {
            kind: {k: torch.as_tensor(v).detach() for k, v in table.items()}
            for kind, table in tables.items()
        }
        return {
            **latest,
            "on_device": {
                kind: [k for k, v in table.items() if v.device.type != "cpu"]
                for kind, table in latest.items()
            },
            "epoch": [
                {
                    "scope": scope.name,
                    "name": name,
                    "call": slot.saved_call,
                    "metric": names.get(id(slot.metric)),
                    "has_metric": slot.metric is not None,
                    **slot.state_dict(),
                }
                for (scope, _), slots in self._tables.items()
                if scope in (Scope.TRAIN_BATCH, Scope.TRAIN_EPOCH)
                for name, slot in slots.items()
            ],
        }

    def load_state_dict(
        self, state_dict: dict[str, Any], parts: Mapping[str, Any], device: torch.device
    ) -> None:
        """Take back what `state_dict` returned.

        Args:
            state_dict: it.
            parts: the module's parts by name.
            device: where values go that were not on the host.
        """
        self._bar = {}
        for kind, table in (
            ("callback_metrics", self.callback_metrics),
            ("logged_metrics", self.logged_metrics),
            ("bar", self._bar),
        ):
            on_device = set(state_dict["on_device"][kind])
            table.clear()
            table.update(
                {k: v.to(device) if k in on_device else v for k, v in state_dict[kind].items()}
            )
        self.enter(Scope.TRAIN_EPOCH)  # in the order in which a fit enters them
        for item in state_dict["epoch"]:
            self.enter(Scope[item["scope"]])
            call = list(item["call"])
            call[_REDUCE_FX] = call[_REDUCE_FX] or unknown
            slot = self._register(item["name"], tuple(call))
            slot.load_state_dict(item, device)
            if item["metric"] is not None:
                slot.metric = parts.get(item["metric"])
        self.enter(Scope.CLOSED)

    def _register(self, name: str, call: tuple[Any, ...]) -> Slot:
        prog_bar, logger, on_step, on_epoch, reduce_fx, add_dataloader_idx = call
        if self.scope in (Scope.CLOSED, Scope.PREDICTION):
            raise MetricError(
                f"log({name!r}) was called in {self.scope.value}, where it has no meaning: call it "
                "from a training, validation or test step, or a hook of their batches or epochs."
            )
        if not isinstance(name, str):
            raise MetricError(f"log({name!r}): the name must be a string.")
        in_batch = self.scope is Scope.TRAIN_BATCH
        if self.scope is Scope.TRAIN_EPOCH and on_step:
            raise MetricError(
                f"log({name!r}, on_step=True) was called in {self.scope.value}: there is no step "
                "there. Leave on_step out."
            )
        on_step = in_batch if on_step is None else on_step
        on_epoch = not in_batch if on_epoch is None else on_epoch
        if not on_step and not on_epoch:
            raise MetricError(
                f"log({name!r}) with on_step=False and on_epoch=False in {self.scope.value}: the "
                "value would go nowhere. Set one of them to True; in a training batch on_epoch is "
                "False unless said."
            )
        slot = Slot(
            name + self._suffix if add_dataloader_idx else name,
            call,
            reduce_fx=reduce_fx,
            on_step=on_step,
            on_epoch=on_epoch,
            prog_bar=prog_bar,
            logger=logger is not False,
        )
        self._slots[name] = slot
        return slot

    def _taken(self, slot: Slot, value: Any) -> Tensor | None:
        """Return a number, or a metric object's value for the last batch if that is wanted."""
        if isinstance(value, int | float):
            return torch.tensor(float(value))
        if not isinstance(value, Metric):
            return number(slot.name, value)
        slot.take(value)
        if self.scope is Scope.TRAIN_EPOCH:
            self._publish(slot, slot.reduce())
        return slot.latest() if slot.on_step else None

    def _publish(self, slot: Slot, value: Tensor) -> None:
        """Make an epoch's value known."""
        self.callback_metrics[slot.name] = value
        self.callback_metrics[slot.epoch_key] = value
        if slot.prog_bar:
            self._bar[slot.epoch_key] = value

    def _found_batch_size(self) -> int:
        if self._sized is not self.batch:
            tensor = first_tensor(self.batch)
            self._size = tensor.shape[0] if tensor is not None else 1
            self._sized = self.batch
        return self._size


def _lost(name: str) -> str:
    return (
        f"log({name!r}, reduce_fx=a function) was not called in this epoch after the resume, and "
        "the function cannot be saved: the values from before are left out. Log it in every batch, "
        "or reduce with 'mean', 'sum', 'min' or 'max'."
    )


def _require_same_call(slot: Slot, call: tuple[Any, ...], scope: Scope) -> None:
    """Make sure that a name is logged with the arguments it was logged with at first."""
    changes = [
        f"{argument} was {before!r} and is {now!r}"
        for argument, before, now in zip(_ARGUMENTS, slot.call, call, strict=True)
        # a lambda in a step is a new function each time, but the same code
        if before != now and getattr(before, "__code__", None) is not getattr(now, "__code__", 0)
    ]
    if changes:
        raise MetricError(
            f"log({slot.name!r}) was called with other arguments than before in {scope.value}: "
            f"{'; '.join(changes)}. They must stay the same. Log the other under a name of its own."
        )
