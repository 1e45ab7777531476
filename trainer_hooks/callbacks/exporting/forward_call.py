"""ForwardCall: the arguments of a call of `forward`, which can be resized to any batch size."""

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

__all__ = ["ForwardCall", "tensors_in"]


@dataclass(frozen=True, slots=True)
class ForwardCall:
    """The arguments of a call of `forward`.

    Tensors whose first dimension is that of the first tensor belong to the batch.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @classmethod
    def from_sample(cls, module: nn.Module, sample: Any) -> ForwardCall:
        """Return the call of `forward` that a sample input describes.

        A tuple or list holds the arguments in order, with a mapping of keywords last if there are
        any; a mapping whose keys are names of arguments holds keyword arguments. Anything else, and
        a sample that `forward` does not accept in this way, is the one argument.
        """
        signature = inspect.signature(module.forward)
        names = set(signature.parameters)
        candidates = []
        if isinstance(sample, Mapping) and sample and names.issuperset(sample):
            candidates.append(cls((), dict(sample)))
        if isinstance(sample, list | tuple):
            last = sample[-1] if len(sample) > 1 else None
            if isinstance(last, Mapping) and names.issuperset(last):
                candidates.append(cls(tuple(sample[:-1]), dict(last)))
            candidates.append(cls(tuple(sample), {}))
        candidates.append(cls((sample,), {}))
        return next((call for call in candidates if call.fits(signature)), candidates[-1])

    def fits(self, signature: inspect.Signature) -> bool:
        """Return whether a function of a signature accepts these arguments."""
        try:
            signature.bind(*self.args, **self.kwargs)
        except TypeError:
            return False
        return True

    def outputs_of(self, module: nn.Module) -> Any:
        """Call a module with these arguments and return its outputs."""
        return module(*self.args, **self.kwargs)

    @property
    def size(self) -> int:
        """The number of samples in the batch; 0 if no tensor has a dimension for them."""
        sizes = [len(tensor) for tensor in tensors_in((self.args, self.kwargs)) if tensor.ndim]
        return sizes[0] if sizes else 0

    def resized(self, size: int) -> ForwardCall:
        """Return the call with a batch of `size` samples, made by repeating its own."""
        own_size = self.size
        rows = torch.arange(size) % own_size

        def resize(tensor: Tensor) -> Tensor:
            return tensor[rows.to(tensor.device)] if _belongs_to_batch(tensor, own_size) else tensor

        return self.mapped(resize)

    def mapped(self, change: Callable[[Tensor], Tensor]) -> ForwardCall:
        """Return the call with each tensor replaced by the result of a function."""

        def change_tensor(leaf: Any) -> Any:
            return change(leaf) if isinstance(leaf, Tensor) else leaf

        args, kwargs = tree_map(change_tensor, (self.args, self.kwargs))
        return ForwardCall(args, kwargs)

    def with_dtype(self, before: torch.dtype, after: torch.dtype) -> ForwardCall:
        """Return the call with the tensors of one type converted to another."""
        return self.mapped(lambda tensor: tensor.to(after) if tensor.dtype == before else tensor)

    def in_order(self, module: nn.Module) -> ForwardCall:
        """Return the call with keyword arguments as positional ones where `forward` allows it."""
        bound = inspect.signature(module.forward).bind(*self.args, **self.kwargs)
        return ForwardCall(bound.args, bound.kwargs)

    def dynamic_shapes(self, module: nn.Module, batch: Any) -> dict[str, Any]:
        """Return the batch dimension of each tensor by argument name, as torch.export takes it.

        Args:
            module: the module that is called.
            batch: the name or `torch.export.Dim` of the batch dimension.
        """
        own_size = self.size

        def dims(leaf: Any) -> dict[int, Any] | None:
            if not isinstance(leaf, Tensor):
                return None
            return {0: batch} if _belongs_to_batch(leaf, own_size) else {}

        bound = inspect.signature(module.forward).bind(*self.args, **self.kwargs)
        return {name: tree_map(dims, value) for name, value in bound.arguments.items()}


def tensors_in(value: Any) -> list[Tensor]:
    """Return the tensors of nested containers, in order."""
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]


def _belongs_to_batch(tensor: Tensor, size: int) -> bool:
    return tensor.ndim > 0 and len(tensor) == size
