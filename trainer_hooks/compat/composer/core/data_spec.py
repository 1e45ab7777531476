"""DataSpec: a loader, and how its batches are counted, split and changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trainer_hooks.data import count_samples, measure, split_batch
from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["DataSpec", "ensure_data_spec"]


class DataSpec:
    """Say what a loader's batches are.

    Args:
        dataloader: the loader.
        num_samples: samples of the data set; kept, and not used.
        num_tokens: likewise.
        batch_transforms: changes a batch from the loader, on the host.
        microbatch_transforms: changes a microbatch on the device, before the forward.
        split_batch: splits a batch into microbatches of at most so many samples.
        get_num_samples_in_batch: counts samples.
        get_num_tokens_in_batch: counts tokens.
        device_transforms: an older name of `microbatch_transforms`.

    Raises:
        OptionError: both names of the last are given.
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
        self.batch_transforms = batch_transforms or _same
        self.microbatch_transforms = microbatch_transforms or device_transforms or _same
        self.split_batch = split_batch or _split
        self.get_num_samples_in_batch = get_num_samples_in_batch or count_samples
        self.get_num_tokens_in_batch = get_num_tokens_in_batch or _tokens

    @property
    def is_plain(self) -> bool:
        """Whether it changes no batch from the loader."""
        return self.batch_transforms is _same


def ensure_data_spec(dataloader: Any) -> DataSpec:
    """Return a `DataSpec` as it is, of a dict of its arguments, or of a loader."""
    if isinstance(dataloader, DataSpec):
        return dataloader
    if isinstance(dataloader, Mapping):
        return DataSpec(**dataloader)
    return DataSpec(dataloader)


def _same(batch: Any) -> Any:
    return batch


def _split(batch: Any, size: int) -> Any:
    return split_batch(batch, size)


def _tokens(batch: Any) -> int:
    return measure(batch)[1]
