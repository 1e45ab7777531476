"""One logged name: how its values are kept within an epoch, and what becomes of them at its end."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from trainer_hooks.errors import MetricError
from trainer_hooks.metrics.kept import FOR_LOGGERS, FOR_READERS, KeptValues
from trainer_hooks.metrics.values import scalar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["FOR_LOGGERS", "FOR_READERS", "Metric", "Slot", "unknown"]

_REDUCTIONS = ("mean", "sum", "min", "max")
_SYNC_DIST, _RANK_ZERO_ONLY = 6, 7
"""Places in the arguments of a call."""
_FUNCTIONS = {torch.mean: "mean", torch.sum: "sum", torch.min: "min", torch.max: "max"}


@runtime_checkable
class Metric(Protocol):
    """A metric object that keeps its own state, as torchmetrics' are."""

    def compute(self) -> Any:
        """Return the value so far."""

    def reset(self) -> None:
        """Forget everything."""

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Take another batch in."""


class Slot(KeptValues):
    """Keep the values logged under one name, and what it was logged with.

    Args:
        name: the name.
        reduce_fx: `"mean"` (weighted by batch size), `"sum"`, `"min"`, `"max"`, or a function of
            the tensor of all values.
        on_step: whether single values are handed on.
        on_epoch: whether the epoch's reduction is handed on.
        prog_bar: whether the progress bar shows it.
        logger: whether loggers are given it.
        suffix: what tells several loaders apart; it comes after `_step` and `_epoch`.

    Attributes:
        call: the arguments it was first logged with.
        metric: the metric object that was logged, or None.
        is_weighted: whether a value's weight matters.
        shared: the epoch's reduction over several processes, once they brought it together.
    """

    __slots__ = (
        "_reduced", "call", "epoch_key", "is_weighted", "logger", "metric", "on_epoch", "on_step",
        "prog_bar", "shared", "step_key", "suffix",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        call: tuple[Any, ...],
        *,
        reduce_fx: str | Callable[[Tensor], Tensor] = "mean",
        on_step: bool = False,
        on_epoch: bool = True,
        prog_bar: bool = False,
        logger: bool = True,
        suffix: str = "",
    ) -> None:
        if reduce_fx == "avg":
            reduce_fx = "mean"
        elif callable(reduce_fx):
            reduce_fx = _FUNCTIONS.get(reduce_fx, reduce_fx)
        if not callable(reduce_fx) and reduce_fx not in _REDUCTIONS:
            raise MetricError(
                f"log({name!r}, reduce_fx={reduce_fx!r}): must be one of {', '.join(_REDUCTIONS)}, "
                "or a function that takes the tensor of all values."
            )
        is_forked = on_step and on_epoch
        super().__init__(name + suffix, reduce_fx, keeps_all=on_epoch)
        self.call = call
        self.on_step = on_step
        self.on_epoch = on_epoch
        self.prog_bar = prog_bar
        self.logger = logger
        self.is_weighted = on_epoch and reduce_fx == "mean"
        self.step_key = f"{name}_step{suffix}" if is_forked else self.name
        self.epoch_key = f"{name}_epoch{suffix}" if is_forked else self.name
        self.metric: Any = None
        self._reduced: Tensor | None = None
        self.shared: Tensor | None = None
        self.suffix = suffix

    @property
    def has_values(self) -> bool:
        """Whether anything was logged since the epoch began."""
        return self.shared is not None or self.has_own_values

    @property
    def has_own_values(self) -> bool:
        """Whether anything was logged in this process since the epoch began."""
        has_folded = self._total is not None or bool(self._chunks)
        return self._count > 0 or has_folded or self.metric is not None

    @property
    def is_synced(self) -> bool:
        """Whether it was logged with `sync_dist`."""
        return bool(self.call[_SYNC_DIST])

    @property
    def is_synced_by_step(self) -> bool:
        """Whether there is a new single value that is to be reduced over processes."""
        return self.on_step and bool(self.news & FOR_LOGGERS) and self.is_synced

    @property
    def description(self) -> dict[str, Any]:
        """What another process needs to know of it, as plain data."""
        return {
            "call": self.saved_call,
            "suffix": self.suffix,
            "rank_zero_only": bool(self.call[_RANK_ZERO_ONLY]),
        }

    @property
    def is_waiting(self) -> bool:
        """Whether it was restored and reduces with a function, which is known when it is logged."""
        return self.reduce_fx is unknown

    @property
    def is_lost(self) -> bool:
        """Whether there are restored values that cannot be reduced."""
        return self.is_waiting and self._reduced is None and self.has_values

    @property
    def saved_call(self) -> list[Any]:
        """The arguments as plain data: None in place of a function, which cannot be saved."""
        return [None if callable(argument) else argument for argument in self.call]

    def take(self, metric: Any) -> None:
        """Keep a metric object, which holds the epoch's values itself.

        Raises:
            MetricError: it is a collection of several.
        """
        if hasattr(metric, "items"):
            raise MetricError(
                f"log({self.name!r}) was given a collection of metric objects: it must be one. "
                "Log all of them with log_dict."
            )
        self.metric = metric
        if self.on_step:
            self._latest = self.latest()
        self.news = FOR_LOGGERS | FOR_READERS

    def latest(self) -> Tensor:
        """Return the metric object's value for the last batch, or for the epoch so far."""
        # torchmetrics keeps it here for exactly this use
        latest = getattr(self.metric, "_forward_cache", None)
        latest = self.metric.compute() if latest is None else latest
        return scalar(self.name, latest, "a metric object").clone()

    def reduce(self) -> Tensor:
        """Return the epoch's reduction of what was logged, as a 0-dim tensor; nothing changes.

        Of several processes it is what they brought together last.
        """
        return self.local_value() if self.shared is None else self.shared

    def own_parts(self) -> tuple[float, float]:
        """Return the total and the weight of what this process logged."""
        if callable(self.reduce_fx):
            return float(self.local_value()), 1.0
        total, weight = self._combined()
        return float(total), float(weight)

    def local_value(self) -> Tensor:
        """Return the reduction of what this process logged."""
        if self.metric is not None:
            return scalar(self.name, self.metric.compute(), "a metric object")
        if self.is_waiting and self._reduced is not None:
            return self._reduced
        if not self.has_values:
            raise MetricError(f"nothing was logged under {self.name!r} in this epoch.")
        if callable(self.reduce_fx):
            return scalar(self.name, self.reduce_fx(self._all_values()), "a reduce_fx")
        total, weight = self._combined()
        if self.reduce_fx == "mean":
            total = total / weight
        return total.to(torch.float32)

    def reset(self) -> None:
        """Begin a new epoch."""
        self._weights.clear()
        self._chunks.clear()
        self._count = 0
        self._total = None
        self._weight = 0
        self._reduced = self.shared = None
        if self.metric is not None:
            self.metric.reset()
            self.metric = None

    def mute(self) -> None:
        """Hand nothing on, whatever is logged."""
        self.on_step = self.on_epoch = self.logger = self.prog_bar = False

    def forget(self) -> None:
        """Begin a new epoch, and leave nothing to hand on."""
        self.reset()
        self._latest = self._attached = None
        self.news = 0

    def state_dict(self) -> dict[str, Any]:
        """Return the values of the epoch under way as plain data and tensors."""
        reduced = self._reduced_so_far()
        value = self.value
        values = [] if self._rows is None else [v.clone() for v in self._rows[: self._count]]
        total = torch.cat(self._chunks) if self._chunks else self._total
        held = (value, total, *values)
        return {
            "is_on_host": not any(isinstance(v, Tensor) and v.device.type != "cpu" for v in held),
            "value": None if value is None else value.detach(),
            "is_new": bool(self.news & FOR_LOGGERS),
            "values": values,
            "weights": list(self._weights),
            "total": total,
            "weight": self._weight,
            "reduced": reduced,
        }

    def load_state_dict(self, state_dict: dict[str, Any], device: torch.device) -> None:
        """Take the values of the epoch under way back.

        Args:
            state_dict: what `state_dict` returned.
            device: where values go that were not on the host.
        """

        def placed(value: Any) -> Any:
            is_there = state_dict["is_on_host"] or not isinstance(value, Tensor)
            return value if is_there else value.to(device)

        is_of_all = self.is_waiting or callable(self.reduce_fx)
        total = placed(state_dict["total"])
        self.reset()
        for value, weight in zip(state_dict["values"], state_dict["weights"], strict=True):
            self.add(placed(value), weight)
        self._total = None if is_of_all else total
        self._chunks = [total] if is_of_all and total is not None else []
        self._weight = state_dict["weight"]
        self._reduced = placed(state_dict["reduced"])
        self._latest = placed(state_dict["value"])
        self.news = FOR_LOGGERS if state_dict["is_new"] else 0

    def take_over(self, before: Slot) -> None:
        """Go on with what another slot of this name holds."""
        for name in KeptValues.__slots__:
            if name not in ("name", "reduce_fx", "_keeps_all"):
                setattr(self, name, getattr(before, name))

    def _reduced_so_far(self) -> Tensor | None:
        """Return the reduction by a function, which stands unless the name is logged with again."""
        if self.is_waiting or not any(map(callable, self.call)) or not self.has_values:
            return self._reduced
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return self.reduce()
        except Exception:  # noqa: BLE001 - made for whole epochs perhaps; `is_lost` tells of it
            return None


def unknown(values: Tensor) -> Tensor:
    """Stand in for a function that is not known before it is logged with again."""
    return values
