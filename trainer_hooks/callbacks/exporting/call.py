"""A call of a module's forward: its arguments, in batches of any size."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

if TYPE_CHECKING:
    from torch import nn

__all__ = ["Call", "tensors_in"]


@dataclass(frozen=True, slots=True)
class Call:
    """The arguments of a call of `forward`.

    What belongs to the batch are the tensors whose first dimension is that of the first one.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @classmethod
    def of(cls, module: nn.Module, sample: Any) -> Call:
        """Return the call that a sample input stands for.

        A tuple or list holds the arguments in order, with a mapping of keywords last if there are
        any; a mapping whose keys are names of arguments holds those. If `forward` does not take
        them so, and for anything else, the sample is the one argument.
        """
        signature = inspect.signature(module.forward)
        names = set(signature.parameters)
        calls = []
        if isinstance(sample, Mapping) and sample and names.issuperset(sample):
            calls.append(cls((), dict(sample)))
        if isinstance(sample, list | tuple):
            last = sample[-1] if len(sample) > 1 else None
            if isinstance(last, Mapping) and names.issuperset(last):
                calls.append(cls(tuple(sample[:-1]), dict(last)))
            calls.append(cls(tuple(sample), {}))
        calls.append(cls((sample,), {}))
        return next((call for call in calls if call.fits(signature)), calls[-1])

    def fits(self, signature: inspect.Signature) -> bool:
        """Return whether a function of that signature takes these arguments."""
        try:
            signature.bind(*self.args, **self.kwargs)
        except TypeError:
            return False
        return True

    def of_module(self, module: nn.Module) -> Any:
        """Return what a module makes of it."""
        return module(*self.args, **self.kwargs)

    @property
    def size(self) -> int:
        """How many samples are in the batch; 0 if no tensor has a dimension for them."""
        sizes = [len(tensor) for tensor in tensors_in((self.args, self.kwargs)) if tensor.ndim]
        return sizes[0] if sizes else 0

    def resized(self, size: int) -> Call:
        """Return it with so many samples, its own over and over."""
        own = self.size
        rows = torch.arange(size) % own

        def resize(tensor: Tensor) -> Tensor:
            return tensor[rows.to(tensor.device)] if _is_batch(tensor, own) else tensor

        return self.mapped(resize)

    def mapped(self, change: Callable[[Tensor], Tensor]) -> Call:
        """Return it with each tensor changed."""
        args, kwargs = _mapped((self.args, self.kwargs), change)
        return Call(args, kwargs)

    def with_dtype(self, before: torch.dtype, after: torch.dtype) -> Call:
        """Return it with the tensors of one type in another."""
        return self.mapped(lambda tensor: tensor.to(after) if tensor.dtype == before else tensor)

    def in_order(self, module: nn.Module) -> Call:
        """Return it with the keywords turned into positions, as far as `forward` allows that."""
        bound = inspect.signature(module.forward).bind(*self.args, **self.kwargs)
        return Call(bound.args, bound.kwargs)

    def dynamic_shapes(self, module: nn.Module, batch: Any) -> dict[str, Any]:
        """Return, by the names of the arguments, which dimension of which tensor is the batch."""
        own = self.size

        def dims(leaf: Any) -> dict[int, Any] | None:
            if not isinstance(leaf, Tensor):
                return None
            return {0: batch} if _is_batch(leaf, own) else {}

        bound = inspect.signature(module.forward).bind(*self.args, **self.kwargs)
        return {name: tree_map(dims, value) for name, value in bound.arguments.items()}


def tensors_in(value: Any) -> list[Tensor]:
    """Return the tensors of nested containers, in order."""
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]


def _is_batch(tensor: Tensor, size: int) -> bool:
    return tensor.ndim > 0 and len(tensor) == size


def _mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    return tree_map(lambda leaf: change(leaf) if isinstance(leaf, Tensor) else leaf, value)
