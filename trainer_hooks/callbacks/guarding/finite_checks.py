"""Checks of many tensors for NaN and infinity at once, computed on their device."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from torch import Tensor, nn
    from torch.optim import Optimizer

__all__ = [
    "any_non_finite",
    "clear_gradients",
    "describe_non_finite",
    "gradients_of",
    "non_finite_weights",
    "read_flags",
]

_MOST_NAMES = 5


def any_non_finite(tensors: Iterable[Tensor], *, is_infinity_fine: bool = False) -> Tensor | None:
    """Return whether a tensor holds NaN or infinity, as a boolean tensor on the tensors' device.

    The host does not wait for the device. None if no tensor could hold any: there is none, or all
    are of integers.

    Args:
        tensors: the tensors to check.
        is_infinity_fine: whether only NaN counts.
    """
    entries = [
        tensor
        for tensor in map(_entries, tensors)
        if tensor.numel() and (tensor.is_floating_point() or tensor.is_complex())
    ]
    if not entries:
        return None
    # the infinity norm: a sum of squares could overflow, and NaN propagates through a maximum
    largest = torch.nn.utils.get_total_norm(entries, math.inf)
    return largest.isnan() if is_infinity_fine else largest.isfinite().logical_not()


def non_finite_weights(module: nn.Module) -> Tensor | None:
    """Return whether trainable parameters are non-finite or buffers hold NaN, as a tensor."""
    learned = any_non_finite(p for p in module.parameters() if p.requires_grad)
    buffers = any_non_finite(module.buffers(), is_infinity_fine=True)
    if learned is None or buffers is None:
        return buffers if learned is None else learned
    # a module may be spread over several devices
    return learned | buffers.to(learned.device)


def read_flags(flags: Mapping[str, Tensor | None]) -> list[str]:
    """Return the names of the true flags; all flags are copied to the host as one number."""
    # One bit a flag: a single copy from the device, where `bool(flag)` for each would wait each
    # time.
    raised = [(name, flag) for name, flag in flags.items() if flag is not None]
    if not raised:
        return []
    device = raised[0][1].device
    code = torch.stack(
        [flag.to(device, torch.int64) << bit for bit, (_, flag) in enumerate(raised)]
    )
    bits = int(code.sum().item())
    return [name for bit, (name, _) in enumerate(raised) if bits >> bit & 1]


def describe_non_finite(module: nn.Module, kinds: Iterable[str]) -> str:
    """Return a text that names the non-finite gradients or weights; it waits for the device."""
    parts = []
    for kind in kinds:
        names = [name for name, flag in _flags_of(module, kind) if flag is not None and bool(flag)]
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        parts.append(
            f"the {kind}" + (f" of {', '.join(names[:_MOST_NAMES])}{more}" if names else "")
        )
    return ", ".join(parts)


def gradients_of(optimizer: Optimizer) -> list[Tensor]:
    """Return the gradients of an optimizer's parameters."""
    parameters = (p for group in optimizer.param_groups for p in group["params"])
    return [parameter.grad for parameter in parameters if parameter.grad is not None]


def clear_gradients(optimizers: Iterable[Optimizer]) -> None:
    """Set all gradients of the optimizers to None, so that a step changes no parameter."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                # None and not zero: momentum and weight decay would change a parameter also with
                # zeros
                parameter.grad = None


def _flags_of(module: nn.Module, kind: str) -> Iterator[tuple[str, Tensor | None]]:
    """Yield the name of each gradient or weight, and whether it is non-finite as a tensor."""
    for name, parameter in module.named_parameters():
        if kind == "gradients" and parameter.grad is not None:
            yield name, any_non_finite([parameter.grad])
        elif kind == "parameters" and parameter.requires_grad:
            yield name, any_non_finite([parameter])
    if kind == "parameters":
        for name, buffer in module.named_buffers():
            yield name, any_non_finite([buffer], is_infinity_fine=True)


def _entries(tensor: Tensor) -> Tensor:
    detached = tensor.detach()
    # the values of an uncoalesced tensor are summed when they are used, and may overflow then
    return detached.coalesce().values() if detached.is_sparse else detached
