"""Part a batch into smaller ones of the same structure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trainer_hooks.errors import DataError
from trainer_hooks.runtime import first_tensor, map_tensors

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["samples_in", "split_batch"]

_ADVICE = (
    "Override split_batch(batch, microbatch_size) in the module, and return a list of batches of "
    "at most so many samples."
)


def samples_in(batch: Any) -> int:
    """Return the number of samples of a batch: the first dimension of its first tensor.

    Raises:
        DataError: it holds no tensor with a dimension.
    """
    tensor = first_tensor(batch)
    if tensor is None:
        raise DataError(
            f"a batch of type {type(batch).__qualname__} cannot be split into microbatches: it "
            f"holds no tensor that says how many samples there are. {_ADVICE}"
        )
    return tensor.shape[0]


def split_batch(batch: Any, size: int) -> list[Any]:
    """Return a batch in parts of `size` samples, the last one perhaps smaller.

    Every tensor is cut along its first dimension, whatever it is nested in; one without dimensions
    goes into each part. A list of texts or other objects, one for each sample, is cut too.

    Raises:
        DataError: a tensor has another number of samples than the first one.
    """
    samples = samples_in(batch)
    if samples <= size:
        return [batch]
    _check(batch, samples)
    return [_part(batch, samples, slice(start, start + size)) for start in range(0, samples, size)]


def _check(batch: Any, samples: int) -> None:
    def check(tensor: Tensor) -> Tensor:
        if tensor.ndim and tensor.shape[0] != samples:
            raise DataError(
                f"a batch cannot be split into microbatches: it holds a tensor of shape "
                f"{tuple(tensor.shape)} beside one of {samples} samples, so it is not known how "
                f"that is to be cut. {_ADVICE}"
            )
        return tensor

    map_tensors(batch, check)


def _part(batch: Any, samples: int, chosen: slice) -> Any:
    cut = _with_lists_cut(batch, samples, chosen)
    return map_tensors(cut, lambda tensor: tensor[chosen] if tensor.ndim else tensor)


def _with_lists_cut(item: Any, samples: int, chosen: slice) -> Any:
    """Return `item` with what has one object that is no tensor for each sample cut."""
    if isinstance(item, list):
        if len(item) == samples and first_tensor(item) is None:
            return item[chosen]
        return [_with_lists_cut(part, samples, chosen) for part in item]
    if type(item) is tuple:
        return tuple(_with_lists_cut(part, samples, chosen) for part in item)
    if isinstance(item, Mapping) and type(item) is dict:
        return {key: _with_lists_cut(part, samples, chosen) for key, part in item.items()}
    return item
