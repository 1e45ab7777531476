"""Single values: what may be logged, and the copies that are kept and handed on."""

from __future__ import annotations

from numbers import Number
from typing import Any

import torch
from torch import Tensor

from trainer_hooks.errors import MetricError

__all__ = ["floats", "kept", "number", "scalar"]


def kept(name: str, value: Tensor, enable_graph: bool = False) -> Tensor:
    """Return a copy of a logged tensor, as a 0-dim tensor that nothing changes later.

    A copy in each case: parameters and buffers change in place, and so does a loss to which
    something is added (`loss += penalty`) after it was logged.

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
    return value.clone() if enable_graph else value.detach().clone()


def number(name: str, value: Any) -> Tensor:
    """Return a logged number as a tensor.

    Raises:
        MetricError: it is no real number.
    """
    if not isinstance(value, Number) or isinstance(value, complex):
        raise MetricError(
            f"log({name!r}) was given {value!r} of type {type(value).__qualname__}: it must be a "
            "number, a tensor with one element, or a metric object. For several use log_dict."
        )
    return torch.tensor(float(value))  # type: ignore[arg-type]


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


def floats(metrics: dict[str, Tensor]) -> dict[str, float]:
    """Return metrics as Python floats. This copies them from each device in one go."""
    names_on: dict[torch.device, list[str]] = {}
    for name, value in metrics.items():
        names_on.setdefault(value.device, []).append(name)
    numbers: dict[str, float] = {}
    for device, names in names_on.items():
        if device.type == "cpu":
            numbers.update({name: float(metrics[name].item()) for name in names})
            continue
        dtype = torch.float32 if device.type == "mps" else torch.float64
        together = torch.stack([metrics[name].detach().to(dtype) for name in names])
        numbers.update(zip(names, together.tolist(), strict=True))
    return {name: numbers[name] for name in metrics}
