"""Split a batch into smaller ones of the same structure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.errors import DataError
from trainer_hooks.runtime.nested_tensors import first_tensor, map_tensors

if TYPE_CHECKING:
    from torch import Tensor

_ADVICE = (
    "Override split_batch(batch, microbatch_size) in the module, and return a list of batches of "
    "at most so many samples."
)


def samples_in(batch: Any) -> int:
    """Return the number of samples of a batch: the first dimension of its first tensor.

    Raises:
        DataError: the batch has no tensor with a dimension.
    """
    tensor = first_tensor(batch)
    if tensor is None:
        raise DataError(
            f"a batch of type {type(batch).__qualname__} cannot be split into microbatches: it "
            f"holds no tensor that says how many samples there are. {_ADVICE}"
        )
    return tensor.size(0)


def split_batch(batch: Any, size: int) -> list[Any]:
    """Return a batch in parts of `size` samples; the last one may be smaller.

    Each tensor is sliced along its first dimension, in containers of any nesting; a tensor without
    dimensions goes into each part. A list with one text or other object per sample is sliced too.

    Raises:
        DataError: a tensor has another number of samples than the first one.
    """
    samples = samples_in(batch)
    if samples <= size:
        return [batch]

    def require_equal_samples(tensor: Tensor) -> Tensor:
        if tensor.ndim and tensor.shape[0] != samples:
            raise DataError(
                f"a batch cannot be split into microbatches: it holds a tensor of shape "
                f"{tuple(tensor.shape)} beside one of {samples} samples, so it is not known how "
                f"that is to be cut. {_ADVICE}"
            )
        return tensor

    # before the first cut: a slice never raises, so a shorter tensor would give an empty part
    map_tensors(batch, require_equal_samples)

    def slice_batch(rows: slice) -> Any:
        sliced = _slice_lists(batch, samples, rows)
        return map_tensors(sliced, lambda tensor: tensor[rows] if tensor.ndim else tensor)

    return [slice_batch(slice(start, start + size)) for start in range(0, samples, size)]


def _slice_lists(item: Any, samples: int, rows: slice) -> Any:
    """Return `item` with each list that has one object per sample sliced."""
    if isinstance(item, list):
        # a list that holds tensors is a structure: its length says nothing of the samples
        if len(item) == samples and first_tensor(item) is None:
            return item[rows]
        return [_slice_lists(part, samples, rows) for part in item]
    # exact types: a namedtuple, or a mapping of another class, would lose its class here
    if type(item) is tuple:
        return tuple(_slice_lists(part, samples, rows) for part in item)
    if type(item) is dict:
        return {key: _slice_lists(part, samples, rows) for key, part in item.items()}
    return item
