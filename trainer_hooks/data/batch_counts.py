"""Count the samples and tokens of a batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor

from trainer_hooks.errors import ModuleError
from trainer_hooks.runtime.nested_tensors import first_tensor

if TYPE_CHECKING:
    from collections.abc import Callable


def count_samples(batch: Any) -> int:
    """Return the first dimension of the first tensor in a batch; 1 without a tensor."""
    tensor = first_tensor(batch)
    return 1 if tensor is None else tensor.size(0)


def count_tokens(batch: Any) -> int:
    """Return the number of `"input_ids"` in a batch that is a mapping, padding included; else 0."""
    if not isinstance(batch, Mapping):
        return 0
    ids = batch.get("input_ids")
    return ids.numel() if isinstance(ids, Tensor) else 0


def count_samples_and_tokens(batch: Any) -> tuple[int, int]:
    """Return the numbers of samples and tokens of a batch, quickly for a list of tensors."""
    if type(batch) is list or type(batch) is tuple:
        try:
            first = batch[0]
            # no look for "input_ids": only a mapping can hold them
            if type(first) is Tensor:
                return first.size(0), 0
        except IndexError:  # an empty batch or a tensor without dimensions is handled below
            pass
    return count_samples(batch), count_tokens(batch)


def checked_counter(
    samples: Callable[[Any], int], tokens: Callable[[Any], int], name: str
) -> Callable[[Any], tuple[int, int]]:
    """Return a function that counts a batch with a module's overrides and checks their results.

    Args:
        samples: the module's `num_samples`.
        tokens: the module's `num_tokens`.
        name: name of the module, for messages.
    """

    def count(batch: Any) -> tuple[int, int]:
        counts = samples(batch), tokens(batch)
        for method, number in zip(("num_samples", "num_tokens"), counts, strict=True):
            # a tensor, as of `mask.sum()`, is refused too: the counters are plain ints
            if isinstance(number, bool) or not isinstance(number, int) or number < 0:
                raise ModuleError(
                    f"{name}.{method}(batch) returned {number!r}: it must be an int of at least 0. "
                    "Return one, such as batch['input_ids'].numel()."
                )
        return counts

    return count
