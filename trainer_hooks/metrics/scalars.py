"""Scalars: checks and conversions of single logged values."""

from __future__ import annotations

from numbers import Number
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainer_hooks.errors import MetricError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def single(name: str, value: Tensor) -> Tensor:
    """Return a logged tensor as a 0-dim tensor.

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
    """Return a logged number as a float.

    Raises:
        MetricError: it is no real number.
    """
    # number, since NumPy registers its scalars there
    if not isinstance(value, Number) or isinstance(value, complex):
        raise MetricError(
            f"log({name!r}) was given {value!r} of type {type(value).__qualname__}: it must be a "
            "number, a tensor with one element, or a metric object. For several use log_dict."
        )
    return float(value)  # type: ignore[arg-type]


def in_one_piece(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return copies of scalars that share memory by type and device, so that a file has one block.

    Args:
        values: 0-dim tensors of any types and devices, by name.
    """
    names_by_type: dict[tuple[torch.dtype, torch.device], list[str]] = {}
    for name, value in values.items():
        names_by_type.setdefault((value.dtype, value.device), []).append(name)
    copies = dict(values)  # keeps the order of names
    for names in names_by_type.values():
        # the rows of one stack have one storage, which torch.save writes once
        copies.update(zip(names, torch.stack([values[name] for name in names]), strict=True))
    return copies


def scalar(name: str, computed: Any, source: str) -> Tensor:
    """Return the computed value of a metric object or a function as a 0-dim tensor.

    Args:
        name: the metric's name, for messages.
        computed: the value.
        source: who computed it, for messages.

    Raises:
        MetricError: it is not one number.
    """
    if isinstance(computed, Tensor | Number):
        tensor = torch.as_tensor(computed).detach()
        if tensor.numel() == 1:
            return tensor.reshape(())
        shown = f"a tensor of shape {tuple(tensor.shape)}"
    else:
        shown = f"a {type(computed).__qualname__}"
    raise MetricError(
        f"log({name!r}) was given {source} that computes {shown}: it must compute one number. Log "
        "the numbers one by one, as with log_dict."
    )


def reduce_values(reduction: str, values: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return the mean, sum, min or max of values; `weights` are for a mean, by default equal."""
    if reduction == "mean" and weights is not None:
        return (values * weights).sum() / weights.sum()
    reduce: Callable[[Tensor], Tensor] = getattr(torch, reduction)
    return reduce(values)


def floats(metrics: Mapping[str, Tensor | float]) -> dict[str, float]:
    """Return metrics as Python floats, in one copy from each device."""
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
        # one copy for all needs one type: the widest that the device has
        dtype = torch.float32 if device.type == "mps" else torch.float64
        stacked = torch.stack([value.detach().to(dtype) for value in values.values()])
        # `tolist` waits for the device once, `item` would for each value
        numbers.update(zip(values, stacked.tolist(), strict=True))
    return {name: numbers[name] for name in metrics}
