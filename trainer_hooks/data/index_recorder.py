"""Record which samples of its data set each batch of a loader consists of."""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader, IterableDataset

from trainer_hooks.data.loaders import copy_loader, has_indices
from trainer_hooks.data.workers import replaced_sampler

if TYPE_CHECKING:
    from collections.abc import Iterator


class IndexRecorder:
    """A sampler that records the indices it yields, in the order of the batches.

    Workers ask for the indices of several batches ahead; each list is kept until its batch arrives.

    Args:
        sampler: the loader's batch sampler, or its sampler if it does not batch.
    """

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler
        self._recorded: deque[list[Any]] = deque()

    def __iter__(self) -> Iterator[Any]:
        # workers of an epoch that was left early asked for indices whose batches never arrived
        self._recorded.clear()
        for item in self._sampler:
            self._recorded.append(list(item) if isinstance(item, list | tuple) else [item])
            yield item

    def __len__(self) -> int:
        return len(self._sampler)

    def take(self) -> list[Any] | None:
        """Return the indices of the next batch, or None if they were not recorded."""
        return self._recorded.popleft() if self._recorded else None


@contextmanager
def recording_indices(loader: Any) -> Iterator[tuple[Any, IndexRecorder | None]]:
    """Return an iterable of a loader's batches and the recorder of their indices.

    The recorder is None if there are no indices to record: for a loader that is no DataLoader, a
    data set without indices, or batches that may arrive in another order.
    """
    is_indexed = isinstance(loader, DataLoader) and not isinstance(loader.dataset, IterableDataset)
    # without order, batches of different workers could not be matched with their indices
    if not is_indexed or (loader.num_workers and not loader.in_order):
        yield loader, None
        return
    name = "sampler" if loader.batch_sampler is None else "batch_sampler"
    recorder = IndexRecorder(getattr(loader, name))
    if has_indices(loader):
        yield copy_loader(loader, **{name: recorder}), recorder
        return
    # only the author of a subclass knows how to construct it, so the loader itself temporarily gets
    # the recording sampler
    with replaced_sampler(loader, lambda _: recorder):
        yield loader, recorder
