"""What a name was logged with in an epoch: kept in memory of its own, and reduced by and by."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trainer_hooks.metrics.rows import CHUNK, cells_of, folded, new_rows, row_type, widest
from trainer_hooks.metrics.values import single

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["FOR_LOGGERS", "FOR_READERS", "FOR_THE_WHOLE", "KeptValues"]

FOR_LOGGERS = 1
"""Of `KeptValues.news`: the last value was not yet handed to the loggers."""
FOR_READERS = 2
"""Of `KeptValues.news`: it is not yet where callbacks and the progress bar read it."""
FOR_THE_WHOLE = 4
"""Of `KeptValues.news`: it was logged of a part of a batch, and not yet counted for the batch."""
_NEW = FOR_LOGGERS | FOR_READERS | FOR_THE_WHOLE


class KeptValues:
    """Keep the values of an epoch, and the last one.

    A value is copied into memory of this object's own, as it may change in place after it was
    logged. That memory is written over later, so whoever reads gets a copy of that.

    Args:
        name: the name that they are logged under.
        reduce_fx: `"mean"`, `"sum"`, `"min"`, `"max"`, or a function of all values.
        keeps_all: whether all are kept for a reduction, and not the last one alone.

    Attributes:
        news: who did not get the last value yet: `FOR_LOGGERS`, `FOR_READERS`, or both.
    """

    __slots__ = (
        "_attached", "_cells", "_chunks", "_count", "_dtype", "_keeps_all", "_latest", "_on_cpu",
        "_rows", "_total", "_weight", "_weights", "name", "news", "reduce_fx",
    )  # fmt: skip

    def __init__(
        self, name: str, reduce_fx: str | Callable[[Tensor], Tensor], *, keeps_all: bool
    ) -> None:
        self.name = name
        self.reduce_fx = reduce_fx
        self.news = 0
        self._keeps_all = keeps_all
        self._latest: Tensor | float | None = None
        self._attached: Tensor | None = None
        self._rows: Tensor | None = None
        self._cells: tuple[Tensor, ...] | None = None
        self._dtype: torch.dtype | None = None
        self._on_cpu = True
        self._count = 0
        self._weights: list[int] = []
        self._chunks: list[Tensor] = []
        self._total: Tensor | None = None
        self._weight = 0

    @property
    def value(self) -> Tensor | None:
        """A copy of the last value, on the device where it was made; a number is on the host."""
        if self._attached is not None:
            return self._attached
        if isinstance(self._latest, Tensor):
            return self._latest.clone()
        return None if self._latest is None else torch.tensor(self._latest)

    def add(self, value: Tensor, weight: int) -> None:
        """Keep one more value.

        Raises:
            MetricError: it has several elements, none, or is complex.
        """
        if value.dtype is self._dtype and value.is_cpu is self._on_cpu and not value.ndim:
            self._latest = cell = self._cells[self._count]  # type: ignore[index]
            cell.copy_(value.detach())
        else:
            self._make_room(single(self.name, value))
            self._latest = cell = self._cells[self._count]  # type: ignore[index]
            cell.copy_(value.detach().reshape(()))
        self.news = _NEW
        if self._keeps_all:
            self._weights.append(weight)
            self._count += 1
            if self._count == CHUNK:
                self._fold()

    def add_attached(self, value: Tensor, weight: int) -> None:
        """Keep one more value, the last one with its autograd graph."""
        self.add(value, weight)
        self._attached = value.reshape(()).clone()

    def add_number(self, value: float, weight: int) -> None:
        """Keep one more number."""
        self._latest = value
        self.news = _NEW
        if self._keeps_all:
            if self._cells is None:
                self._set_rows(torch.float64, torch.device("cpu"))
            self._cells[self._count].fill_(value)  # type: ignore[index]
            self._weights.append(weight)
            self._count += 1
            if self._count == CHUNK:
                self._fold()

    def replace_last(self, value: Tensor) -> None:
        """Put another value in the place of the last one; those of the epoch stay."""
        self._latest = value
        self._attached = None
        self.news = FOR_LOGGERS | FOR_READERS

    def _combined(self) -> tuple[Tensor, int]:
        """Return the total, in the widest type, and the weight of all values of the epoch."""
        if self._count == 0:
            assert self._total is not None
            return self._total, self._weight
        assert self._rows is not None
        kind = str(self.reduce_fx)
        part = folded(kind, self._rows[: self._count], self._weights)
        if self._total is not None:
            combine = {"min": torch.minimum, "max": torch.maximum}.get(kind, torch.add)
            part = combine(self._total, part)
        return part, self._weight + (sum(self._weights) if kind == "mean" else 0)

    def _all_values(self) -> Tensor:
        """Return every value of the epoch, for a function."""
        parts = list(self._chunks)
        if self._count:
            assert self._rows is not None
            parts.append(self._rows[: self._count])
        device = next((p.device for p in parts if p.device.type != "cpu"), parts[0].device)
        wide = widest(device)
        return torch.cat([part.to(device=device, dtype=wide) for part in parts])

    def _fold(self) -> None:
        """Reduce what was collected; single additions would cost a kernel each."""
        if callable(self.reduce_fx):
            assert self._rows is not None
            self._chunks.append(self._rows[: self._count].clone())
        else:
            self._total, self._weight = self._combined()
        self._count = 0
        self._weights.clear()

    def _make_room(self, value: Tensor) -> None:
        """See to it that a value of this type and device can be kept beside those before it."""
        dtype, device = row_type(value), value.device
        rows = self._rows
        if rows is not None:
            # numbers are logged on the CPU, and may stand between tensors of another device
            device = rows.device if value.is_cpu else device
            dtype = torch.promote_types(dtype, rows.dtype)
            dtype = torch.float32 if device.type == "mps" else dtype
        if rows is None or (rows.dtype, rows.device) != (dtype, device):
            self._set_rows(dtype, device)
        self._dtype, self._on_cpu = value.dtype, value.is_cpu

    def _set_rows(self, dtype: torch.dtype, device: torch.device) -> None:
        before = self._rows
        self._rows = new_rows(dtype, device, CHUNK if self._keeps_all else 1)
        if before is not None:
            self._rows[: self._count].copy_(before[: self._count])
        self._cells = cells_of(self._rows)
        if self._total is not None:
            self._total = self._total.to(device)
