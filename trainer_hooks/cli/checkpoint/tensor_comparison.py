"""Compare the tensors of two trainings bit for bit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainer_hooks.cli.values import count_with_noun

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["TensorComparison", "compare_tensors", "tensors_in"]


@dataclass(frozen=True, slots=True)
class TensorComparison:
    """The result of comparing two sets of named tensors.

    Attributes:
        tensors: the number of distinct names in both sets.
        numbers: the total number of elements in the first set.
        differing: for each name whose tensors differ, a description of the difference.
    """

    tensors: int
    numbers: int
    differing: Mapping[str, str]

    @property
    def is_equal(self) -> bool:
        """Whether at least one tensor was compared and all of them are bit-identical."""
        return self.tensors > 0 and not self.differing

    def __str__(self) -> str:
        if self.is_equal:
            tensors = count_with_noun(self.tensors, "tensor")
            size = f"{tensors}, {count_with_noun(self.numbers, 'number')}"
            return f"equal, bit for bit ({size})"
        if not self.tensors:
            return "NOT EQUAL: there is nothing to compare"
        name, how = next(iter(self.differing.items()))
        return (
            f"NOT EQUAL: {len(self.differing)} of {self.tensors} tensors differ; "
            f"the first is {name}: {how}"
        )


def compare_tensors(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> TensorComparison:
    """Compare tensors of the same names; equal means the same dtype, shape and bits."""
    names = list(dict.fromkeys([*one, *other]))
    descriptions = {name: _difference(one.get(name), other.get(name)) for name in names}
    return TensorComparison(
        tensors=len(names),
        numbers=sum(tensor.numel() for tensor in one.values()),
        differing={name: how for name, how in descriptions.items() if how},
    )


def tensors_in(tree: Any, prefix: str = "") -> dict[str, Tensor]:
    """Return every tensor and number in nested dicts, lists and tuples, by its path."""
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
    tensors: dict[str, Tensor] = {}
    for key, value in items:
        tensors.update(tensors_in(value, f"{prefix}.{key}" if prefix else str(key)))
    return tensors


def _difference(one: Tensor | None, other: Tensor | None) -> str:
    """Return a description of how two tensors differ, or an empty string."""
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
