"""Whether an exported module computes what the module does."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from trainer_hooks.callbacks.exporting.call import Call, tensors_in
from trainer_hooks.errors import ExportError, described

if TYPE_CHECKING:
    from torch import Tensor, nn

    from trainer_hooks.callbacks.exporting.formats import Loaded

__all__ = ["verify"]

_OTHER_SIZES = (1, 3)
_ROUNDINGS = 8
"""How many roundings of the outputs' type the difference may always be."""


def verify(run: Loaded, module: nn.Module, call: Call, tolerance: float, what: str) -> None:
    """Make sure that what was written computes what the module does, whatever the batch's size.

    Raises:
        ExportError: it does not.
    """
    for size in (call.size, *_OTHER_SIZES):
        given = call.resized(size)
        try:
            expected = tensors_in(given.of_module(module))
            found = run(given)
        except Exception as error:
            raise ExportError(
                f"export of {what}: it cannot be run with a batch of {size} "
                f"({described(error)}). Nothing was written there. Let forward take "
                "the size of the batch from its input and not from a number that is fixed."
            ) from error
        difference, allowed = _difference(found, expected, tolerance)
        if not difference <= allowed:
            raise ExportError(
                f"export of {what}: with a batch of {size} it computes something else than the "
                f"module: the largest difference is {difference:.3g}, and {allowed:.3g} is "
                "allowed. Nothing was written there. Let forward depend on its input alone, or "
                "pass a larger tolerance."
            )


def _difference(
    found: list[Tensor], expected: list[Tensor], tolerance: float
) -> tuple[float, float]:
    """Return how far two lists of tensors are apart, and how far they may be."""
    if [t.shape for t in found] != [t.shape for t in expected]:
        return math.inf, tolerance
    return max(
        (_apart(one, other, tolerance) for one, other in zip(found, expected, strict=True)),
        key=lambda pair: pair[0] - pair[1],
        default=(0.0, tolerance),
    )


def _apart(found: Tensor, expected: Tensor, tolerance: float) -> tuple[float, float]:
    """Return the same of two tensors of one shape."""
    precision = torch.finfo(expected.dtype).eps if expected.is_floating_point() else 0.0
    one, other = (
        (torch.view_as_real(t) if t.is_complex() else t).cpu().double().flatten()
        for t in (found, expected)
    )
    is_number = torch.isfinite(other)
    if not torch.equal(torch.isfinite(one), is_number):
        return math.inf, tolerance
    one, other = one[is_number], other[is_number]
    if other.numel() == 0:
        return 0.0, tolerance
    allowed = max(tolerance, _ROUNDINGS * precision) * max(1.0, other.abs().max().item())
    return (one - other).abs().max().item(), allowed
