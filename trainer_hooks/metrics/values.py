"""Single values: what may be logged, and the copies that are kept and handed on."""

from __future__ import annotations

from numbers import Number
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainer_hooks.errors import MetricError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["floats", "in_one_piece", "is_single", "number", "scalar", "single", "taken"]


def single(name: str, value: Tensor) -> Tensor:
    """Return a logged tensor without dimensions.

    Raises:
        MetricError: it has several elements, none, or is complex.
    """
    if value.ndim:
        if value.numel() != 1:
            raise MetricError(
                f"log({name!r}) was given a tensor of shape {tuple(value.shape)}: it must have one "
                "element. Reduce it first, as with .mean()."
            )
        value = value.reshape(())
    if value.is_complex():
        raise MetricError(
            f"log({name!r}) was given a complex tensor: it must be a real number. Log its parts, "
            "as with .real and .imag, or .abs()."
        )
    return value


def number(name: str, value: Any) -> float:
    """Return a logged number.

    Raises:
        MetricError: it is no real number.
    """
    if not isinstance(value, Number) or isinstance(value, complex):
        raise MetricError(
            f"log({name!r}) was given {value!r} of type {type(value).__qualname__}: it must be a "
            "number, a tensor with one element, or a metric object. For several use log_dict."
        )
    return float(value)  # type: ignore[arg-type]


def in_one_piece(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return copies of single values that lie side by side: a file keeps them in one piece.

    Args:
        values: tensors without dimensions, of any types and devices.
    """
    alike: dict[tuple[torch.dtype, torch.device], list[str]] = {}
    for name, value in values.items():
        alike.setdefault((value.dtype, value.device), []).append(name)
    found = dict(values)  # in their order
    for names in alike.values():
        found.update(zip(names, torch.stack([values[name] for name in names]), strict=True))
    return found


def is_single(value: Any) -> bool:
    """Return whether a value is a real number or a tensor with one that is."""
    if isinstance(value, Tensor):
        return value.numel() == 1 and not value.is_complex()
    return isinstance(value, Number) and not isinstance(value, complex)


def taken(name: str, value: Any) -> Tensor | float:
    """Return a number, or a copy of a tensor with one element that nothing changes later.

    Raises:
        MetricError: it is neither.
    """
    if isinstance(value, Tensor):
        return single(name, value.detach()).clone()
    return number(name, value)


def scalar(name: str, computed: Any, source: str) -> Tensor:
    """Return what a metric object or a function computed as a 0-dim tensor.

    Raises:
        MetricError: it is not one number.
    """
    if isinstance(computed, Tensor | Number):
        tensor = torch.as_tensor(computed).detach()
        if tensor.numel() == 1:
            return tensor.reshape(())
        found = f"a tensor of shape {tuple(tensor.shape)}"
    else:
        found = f"a {type(computed).__qualname__}"
    raise MetricError(
        f"log({name!r}) was given {source} that computes {found}: it must compute one number. Log "
        "the numbers one by one, as with log_dict."
    )


def floats(metrics: Mapping[str, Tensor | float]) -> dict[str, float]:
    """Return metrics as Python floats. This copies tensors from each device in one go."""
    on_devices: dict[torch.device, dict[str, Tensor]] = {}
    numbers: dict[str, float] = {}
    for name, value in metrics.items():
        if not isinstance(value, Tensor):
            numbers[name] = float(value)
        elif value.is_cpu:
            numbers[name] = float(value.item())
        else:
            on_devices.setdefault(value.device, {})[name] = value
    for device, values in on_devices.items():
        dtype = torch.float32 if device.type == "mps" else torch.float64
        together = torch.stack([value.detach().to(dtype) for value in values.values()])
        numbers.update(zip(values, together.tolist(), strict=True))
    return {name: numbers[name] for name in metrics}
