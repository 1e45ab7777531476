"""Which samples of its data set each batch of a loader consists of."""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader, IterableDataset

from trainer_hooks.data.loaders import copy_loader, has_indices

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["IndexNotes", "noting_indices"]


class IndexNotes:
    """A sampler that notes what it gives, in the order in which the batches will come.

    Workers ask for the indices of many batches ahead; each is kept until its batch is there.

    Args:
        sampler: the loader's batch sampler, or its sampler where it does not batch.
    """

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler
        self._noted: deque[list[Any]] = deque()

    def __iter__(self) -> Iterator[Any]:
        self._noted.clear()
        for item in self._sampler:
            self._noted.append(list(item) if isinstance(item, list | tuple) else [item])
            yield item

    def __len__(self) -> int:
        return len(self._sampler)

    def take(self) -> list[Any] | None:
        """Return the indices of the next batch, or None if they passed by unseen."""
        return self._noted.popleft() if self._noted else None


@contextmanager
def noting_indices(loader: Any) -> Iterator[tuple[Any, IndexNotes | None]]:
    """Give what to take the batches from, and what notes their indices.

    The second is None where there are none to note: no DataLoader, a data set without indices, or
    batches that may come in another order than they were asked for.
    """
    is_indexed = isinstance(loader, DataLoader) and not isinstance(loader.dataset, IterableDataset)
    if not is_indexed or (loader.num_workers and not loader.in_order):
        yield loader, None
        return
    name = "sampler" if loader.batch_sampler is None else "batch_sampler"
    notes = IndexNotes(getattr(loader, name))
    if has_indices(loader):
        yield copy_loader(loader, **{name: notes}), notes
        return
    # a subclass can be made anew by its own author only, so it is lent another sampler
    own = vars(loader)[name]
    vars(loader)[name] = notes
    try:
        yield loader, notes
    finally:
        vars(loader)[name] = own
