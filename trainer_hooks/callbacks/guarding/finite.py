"""Whether tensors hold numbers only: asked of all at once, and answered on the device."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from torch import Tensor, nn
    from torch.optim import Optimizer

__all__ = [
    "any_broken",
    "broken_weights",
    "clear_gradients",
    "described",
    "gradients_of",
    "read_flags",
]

_MOST_NAMES = 5


def any_broken(tensors: Iterable[Tensor], *, is_infinity_fine: bool = False) -> Tensor | None:
    """Return whether one holds NaN or infinity, as a tensor that nobody waited for.

    None if there is nothing that could: no tensor, or whole numbers only.
    """
    entries = [
        tensor
        for tensor in map(_entries, tensors)
        if tensor.numel() and (tensor.is_floating_point() or tensor.is_complex())
    ]
    if not entries:
        return None
    # the largest entry, which no sum of squares can overflow; NaN is larger than all
    largest = torch.nn.utils.get_total_norm(entries, math.inf)
    return largest.isnan() if is_infinity_fine else largest.isfinite().logical_not()


def broken_weights(module: nn.Module) -> Tensor | None:
    """Return whether what a module learned holds NaN, or infinity, which only a buffer may."""
    learned = any_broken(p for p in module.parameters() if p.requires_grad)
    buffers = any_broken(module.buffers(), is_infinity_fine=True)
    if learned is None or buffers is None:
        return buffers if learned is None else learned
    return learned | buffers.to(learned.device)


def read_flags(flags: Mapping[str, Tensor | None]) -> list[str]:
    """Return the names of the flags that are up. All of them are copied to the host as one."""
    raised = [(name, flag) for name, flag in flags.items() if flag is not None]
    if not raised:
        return []
    device = raised[0][1].device
    code = torch.stack(
        [flag.to(device, torch.int64) << bit for bit, (_, flag) in enumerate(raised)]
    )
    bits = int(code.sum().item())
    return [name for bit, (name, _) in enumerate(raised) if bits >> bit & 1]


def described(module: nn.Module, found: Iterable[str]) -> str:
    """Return what is broken in words, with names; the device is waited for."""
    told = []
    for what in found:
        names = [name for name, flag in _flags_of(module, what) if flag is not None and bool(flag)]
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        told.append(
            f"the {what}" + (f" of {', '.join(names[:_MOST_NAMES])}{more}" if names else "")
        )
    return ", ".join(told)


def gradients_of(optimizer: Optimizer) -> list[Tensor]:
    """Return the gradients that an optimizer would step with."""
    parameters = (p for group in optimizer.param_groups for p in group["params"])
    return [parameter.grad for parameter in parameters if parameter.grad is not None]


def clear_gradients(optimizers: Iterable[Optimizer]) -> None:
    """Leave the optimizers nothing to step with: what has no gradient they pass over."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = None


def _flags_of(module: nn.Module, what: str) -> Iterator[tuple[str, Tensor | None]]:
    """Yield of each gradient or weight whether it is broken, with its name."""
    for name, parameter in module.named_parameters():
        if what == "gradients" and parameter.grad is not None:
            yield name, any_broken([parameter.grad])
        elif what == "parameters" and parameter.requires_grad:
            yield name, any_broken([parameter])
    if what == "parameters":
        for name, buffer in module.named_buffers():
            yield name, any_broken([buffer], is_infinity_fine=True)


def _entries(tensor: Tensor) -> Tensor:
    detached = tensor.detach()
    return detached.coalesce().values() if detached.is_sparse else detached
