"""Compare two trainings: their tensors bit for bit, and what their callbacks say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainer_hooks.cli.values import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Comparison", "compare", "tensors_in"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """How two sets of named tensors compare.

    Attributes:
        tensors: how many names there are, in either.
        numbers: how many numbers the tensors of the first hold together.
        differing: the names whose tensors are not the same, each with how they differ.
    """

    tensors: int
    numbers: int
    differing: Mapping[str, str]

    @property
    def is_equal(self) -> bool:
        """Whether there was something to compare, and all of it is the same bit for bit."""
        return self.tensors > 0 and not self.differing

    def __str__(self) -> str:
        if self.is_equal:
            size = f"{counted(self.tensors, 'tensor')}, {counted(self.numbers, 'number')}"
            return f"equal, bit for bit ({size})"
        if not self.tensors:
            return "NOT EQUAL: there is nothing to compare"
        name, how = next(iter(self.differing.items()))
        return (
            f"NOT EQUAL: {len(self.differing)} of {self.tensors} tensors differ; "
            f"the first is {name}: {how}"
        )


def compare(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> Comparison:
    """Compare tensors of the same names; equal means the same type, shape and bits."""
    names = list(dict.fromkeys([*one, *other]))
    found = {name: _difference(one.get(name), other.get(name)) for name in names}
    return Comparison(
        tensors=len(names),
        numbers=sum(tensor.numel() for tensor in one.values()),
        differing={name: how for name, how in found.items() if how},
    )


def tensors_in(tree: Any, prefix: str = "") -> dict[str, Tensor]:
    """Return every tensor and number of nested dicts, lists and tuples, by its path."""
    # not torch.utils._pytree, which is private
    if isinstance(tree, Tensor):
        return {prefix: tree}
    if isinstance(tree, float | int):
        return {prefix: torch.tensor(tree)}
    items: Any = ()
    if isinstance(tree, dict):
        items = tree.items()
    elif isinstance(tree, list | tuple):
        items = enumerate(tree)
    found: dict[str, Tensor] = {}
    for key, value in items:
        found.update(tensors_in(value, f"{prefix}.{key}" if prefix else str(key)))
    return found


def _difference(one: Tensor | None, other: Tensor | None) -> str:
    """Return in words how two tensors differ, or an empty string."""
    if one is None or other is None:
        return "only one of the two has it"
    if one.dtype != other.dtype or one.shape != other.shape:
        return f"{one.dtype} {tuple(one.shape)} and {other.dtype} {tuple(other.shape)}"
    # as bytes, because 0.0 == -0.0 and nan != nan, also for torch.testing.assert_close
    if torch.equal(_bytes(one), _bytes(other)):
        return ""
    return f"by up to {(one.double() - other.double()).abs().max().item():.3g}"


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
