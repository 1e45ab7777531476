"""One logged name: how its values are kept within an epoch, and what becomes of them at its end."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from trainer_hooks.errors import MetricError
from trainer_hooks.metrics.values import scalar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Metric", "Slot", "unknown"]

_REDUCTIONS = ("mean", "sum", "min", "max")
_FUNCTIONS = {torch.mean: "mean", torch.sum: "sum", torch.min: "min", torch.max: "max"}
_CHUNK = 64
"""Values that are collected and then reduced together: one stack, not many additions."""


@runtime_checkable
class Metric(Protocol):
    """A metric object that keeps its own state, as torchmetrics' are."""

    def compute(self) -> Any:
        """Return the value so far."""

    def reset(self) -> None:
        """Forget everything."""

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Take another batch in."""


class Slot:
    """Keep the values logged under one name.

    Args:
        name: the name.
        reduce_fx: `"mean"` (weighted by batch size), `"sum"`, `"min"`, `"max"`, or a function of
            the tensor of all values of the epoch.
        on_step: whether single values are handed on.
        on_epoch: whether the epoch's reduction is handed on.
        prog_bar: whether the progress bar shows it.
        logger: whether loggers are given it.

    Attributes:
        call: the arguments it was first logged with.
        is_new: whether `value` was not yet handed to the loggers.
        value: the last value, detached, on the device where it was made.
        metric: the metric object that was logged, or None.
    """

    __slots__ = (
        "_reduced", "_total", "_values", "_weight", "_weights", "call", "is_new", "logger",
        "metric", "name",
        "on_epoch", "on_step", "prog_bar", "reduce_fx", "step_key", "value",
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
        self.name = name
        self.call = call
        self.reduce_fx = reduce_fx
        self.on_step = on_step
        self.on_epoch = on_epoch
        self.prog_bar = prog_bar
        self.logger = logger
        self.step_key = f"{name}_step" if on_step and on_epoch else name
        self.value: Tensor | None = None
        self.metric: Any = None
        self.is_new = False
        self._values: list[Tensor] = []
        self._weights: list[int] = []
        self._total: Tensor | None = None
        self._weight = 0
        self._reduced: Tensor | None = None

    @property
    def epoch_key(self) -> str:
        """The name of the epoch's reduction."""
        return f"{self.name}_epoch" if self.on_step and self.on_epoch else self.name

    @property
    def has_values(self) -> bool:
        """Whether anything was logged since the epoch began."""
        return bool(self._values) or self._total is not None or self.metric is not None

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

    def add(self, value: Tensor, weight: int) -> None:
        """Keep one more value of the epoch."""
        self._values.append(value)
        self._weights.append(weight)
        if len(self._values) >= _CHUNK:
            self._fold()

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

    def latest(self) -> Tensor:
        """Return the metric object's value for the last batch, or for the epoch so far."""
        # torchmetrics keeps it here for exactly this use
        latest = getattr(self.metric, "_forward_cache", None)
        latest = self.metric.compute() if latest is None else latest
        return scalar(self.name, latest, "a metric object").clone()

    def reduce(self) -> Tensor:
        """Return the epoch's reduction of what was logged, as a 0-dim tensor."""
        if self.metric is not None:
            return scalar(self.name, self.metric.compute(), "a metric object")
        if self.is_waiting and self._reduced is not None:
            return self._reduced
        self._fold()
        if self._total is None:
            raise MetricError(f"nothing was logged under {self.name!r} in this epoch.")
        if callable(self.reduce_fx):
            return scalar(self.name, self.reduce_fx(self._total), "a reduce_fx")
        if self.reduce_fx == "mean":
            return (self._total / self._weight).to(torch.float32)
        return self._total.to(torch.float32)

    def reset(self) -> None:
        """Begin a new epoch."""
        self._values.clear()
        self._weights.clear()
        self._total = None
        self._weight = 0
        self._reduced = None
        if self.metric is not None:
            self.metric.reset()
            self.metric = None

    def state_dict(self) -> dict[str, Any]:
        """Return the values of the epoch under way as plain data and tensors."""
        reduced = self._reduced_so_far()
        held = (self.value, self._total, *self._values)
        return {
            "is_on_host": not any(isinstance(v, Tensor) and v.device.type != "cpu" for v in held),
            "value": self.value,
            "is_new": self.is_new,
            "values": list(self._values),
            "weights": list(self._weights),
            "total": self._total,
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

        self.value = placed(state_dict["value"])
        self.is_new = state_dict["is_new"]
        self._values = [placed(value) for value in state_dict["values"]]
        self._weights = list(state_dict["weights"])
        self._total = placed(state_dict["total"])
        self._weight = state_dict["weight"]
        self._reduced = placed(state_dict["reduced"])

    def take_over(self, before: Slot) -> None:
        """Go on with what another slot of this name holds."""
        self.value, self.is_new = before.value, before.is_new
        self._values, self._weights = before._values, before._weights
        self._total, self._weight = before._total, before._weight

    def _reduced_so_far(self) -> Tensor | None:
        """Return the reduction by a function, which stands unless the name is logged with again.

        It is made of a copy: to fold in the middle of an epoch would change the order of sums.
        """
        if self.is_waiting or not any(map(callable, self.call)) or not self.has_values:
            return self._reduced
        copy = Slot(self.name, self.call, reduce_fx=self.reduce_fx)
        copy.take_over(self)
        copy._values, copy._weights = list(self._values), list(self._weights)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return copy.reduce()
        except Exception:  # noqa: BLE001 - made for whole epochs perhaps; `is_lost` tells of it
            return None

    def _fold(self) -> None:
        """Reduce what was collected; single additions would cost a kernel each."""
        if not self._values:
            return
        stacked = _stacked(self._values)
        part: Tensor
        if callable(self.reduce_fx):
            part = stacked
            if self._total is not None:
                part = torch.cat([self._total.to(stacked.device), stacked])
        elif self.reduce_fx == "mean":
            weights = torch.tensor(self._weights, dtype=stacked.dtype, device=stacked.device)
            part = torch.dot(stacked, weights)
            self._weight += sum(self._weights)
        elif self.reduce_fx == "sum":
            part = stacked.sum()
        else:
            part = stacked.min() if self.reduce_fx == "min" else stacked.max()
        if self._total is not None and not callable(self.reduce_fx):
            combine = {"min": torch.minimum, "max": torch.maximum}.get(self.reduce_fx, torch.add)
            part = combine(self._total, part)
        self._total = part
        self._values.clear()
        self._weights.clear()


def unknown(values: Tensor) -> Tensor:
    """Stand in for a function that is not known before it is logged with again."""
    return values


def _stacked(values: list[Tensor]) -> Tensor:
    """Return values as one tensor, in 64 bits where the device has them."""
    device, kind = values[0].device, values[0].dtype
    if any(value.dtype is not kind or value.device != device for value in values):
        # numbers are logged on the CPU, and may stand between tensors of another device
        device = next((v.device for v in values if v.device.type != "cpu"), device)
        values = [value.to(device=device, dtype=_widest(device)) for value in values]
    return torch.stack(values).to(_widest(device))


def _widest(device: torch.device) -> torch.dtype:
    """Return the floating-point type to reduce in; MPS has no 64 bits."""
    return torch.float32 if device.type == "mps" else torch.float64
