"""DataSpec: a loader, with the functions that count, split and transform its batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trainer_hooks.data.batch_counts import count_samples, count_samples_and_tokens
from trainer_hooks.data.batch_splitting import split_batch as split_into_microbatches
from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["DataSpec", "ensure_data_spec"]


class DataSpec:
    """A loader, with the functions that count, split and transform its batches.

    Args:
        dataloader: the loader.
        num_samples: the number of samples in the data set; kept, and not used.
        num_tokens: the number of tokens in the data set; kept, and not used.
        batch_transforms: a function that transforms a batch from the loader, on the host.
        microbatch_transforms: a function that transforms a microbatch on the device, before the
            forward.
        split_batch: a function of a batch and a size, which returns microbatches of at most so many
            samples.
        get_num_samples_in_batch: a function that counts the samples of a batch.
        get_num_tokens_in_batch: a function that counts the tokens of a batch.
        device_transforms: an older name of `microbatch_transforms`.

    Raises:
        OptionError: both `microbatch_transforms` and `device_transforms` are given.
    """

    def __init__(
        self,
        dataloader: Any,
        num_samples: int | None = None,
        num_tokens: int | None = None,
        batch_transforms: Callable[[Any], Any] | None = None,
        microbatch_transforms: Callable[[Any], Any] | None = None,
        split_batch: Callable[[Any, int], Any] | None = None,
        get_num_samples_in_batch: Callable[[Any], int] | None = None,
        get_num_tokens_in_batch: Callable[[Any], int] | None = None,
        device_transforms: Callable[[Any], Any] | None = None,
    ) -> None:
        if microbatch_transforms is not None and device_transforms is not None:
            raise OptionError(
                "DataSpec(microbatch_transforms=, device_transforms=): both name one thing. Pass "
                "microbatch_transforms."
            )
        self.dataloader = dataloader
        self.num_samples = num_samples
        self.num_tokens = num_tokens
        self.batch_transforms = batch_transforms or _identity
        self.microbatch_transforms = microbatch_transforms or device_transforms or _identity
        self.split_batch = split_batch or split_into_microbatches
        self.get_num_samples_in_batch = get_num_samples_in_batch or count_samples
        self.get_num_tokens_in_batch = get_num_tokens_in_batch or _count_tokens


def ensure_data_spec(dataloader: Any) -> DataSpec:
    """Return a `DataSpec`, made of a loader or of a dict of its arguments if it is none yet."""
    if isinstance(dataloader, DataSpec):
        return dataloader
    if isinstance(dataloader, Mapping):
        return DataSpec(**dataloader)
    return DataSpec(dataloader)


def _identity(batch: Any) -> Any:
    return batch


def _count_tokens(batch: Any) -> int:
    return count_samples_and_tokens(batch)[1]
