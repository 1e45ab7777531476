"""The share of a loader that one of several processes takes."""

from __future__ import annotations

import os
from itertools import islice
from typing import TYPE_CHECKING, Any

from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
)
from torch.utils.data.distributed import DistributedSampler

from trainer_hooks._log import warn
from trainer_hooks.data.combined import CombinedLoader
from trainer_hooks.data.loaders import copy_loader
from trainer_hooks.data.showing import shown
from trainer_hooks.errors import DataError, TrainerHooksWarning
from trainer_hooks.runtime import isolated, reseed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainer_hooks.runtime import Topology

__all__ = ["Share", "shared"]


def shared(loader: Any, topology: Topology, *, trains: bool) -> Any:
    """Return a loader of this process's share of what `loader` gives.

    Args:
        loader: one, or several combined, each of which is shared.
        topology: which process this is.
        trains: whether all must have as many batches, so that some samples are given twice, or
            with `drop_last` left out; if not, each sample is given once, to one process.

    Raises:
        DataError: it is shared among other processes already.
    """
    if isinstance(loader, CombinedLoader):
        return loader.mapped(lambda part: shared(part, topology, trains=trains))
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        _tell_of_whole(loader)
        return loader
    if _is_shared(loader, topology):
        return loader
    if type(loader) is not DataLoader:
        warn(
            f"the loader {shown(loader)} of {topology.world_size} processes is of a class of its "
            "own, so that it is given to each of them whole: let it give each its share, as with "
            "a DistributedSampler.",
            TrainerHooksWarning,
        )
        return loader
    batch_sampler = loader.batch_sampler
    if batch_sampler is not None and type(batch_sampler) is not BatchSampler:
        return copy_loader(loader, batch_sampler=Share(batch_sampler, topology, is_even=trains))
    sampler = loader.sampler
    is_plain = isinstance(sampler, SequentialSampler) or type(sampler) is RandomSampler
    if trains and is_plain and not getattr(sampler, "replacement", False) and _is_whole(loader):
        made: Any = DistributedSampler(
            loader.dataset,
            topology.world_size,
            topology.global_rank,
            shuffle=type(sampler) is RandomSampler,
            seed=_seed(),
            drop_last=loader.drop_last,
        )
    else:
        made = Share(sampler, topology, is_even=trains, drops=loader.drop_last and trains)
    return copy_loader(loader, sampler=made)


class Share:
    """Every n-th item of a sampler or batch sampler, of n processes.

    The order is the same in all processes: random numbers that it is drawn from are seeded by the
    epoch. One that is drawn from a generator of the sampler's own must be seeded alike in all.

    Args:
        sampler: gives indices, or batches of them.
        topology: which process this is.
        is_even: whether all processes get as many; the first items then fill up, or with `drops`
            the last are left out.
        drops: see `is_even`.
    """

    def __init__(
        self, sampler: Any, topology: Topology, *, is_even: bool, drops: bool = False
    ) -> None:
        self.sampler = sampler
        self._world_size, self._rank = topology.world_size, topology.global_rank
        self._is_even, self._drops = is_even, drops
        self._epoch = 0
        batch_size = getattr(sampler, "batch_size", None)
        if batch_size is not None:
            self.batch_size = batch_size

    def set_epoch(self, epoch: int) -> None:
        """Take another order, if it is drawn at random."""
        self._epoch = epoch
        tell = getattr(self.sampler, "set_epoch", None)
        if callable(tell):
            tell(epoch)

    def __iter__(self) -> Iterator[Any]:
        if isinstance(self.sampler, SequentialSampler):
            items: list[Any] | range = range(len(self.sampler))
        else:
            with isolated():
                reseed((_seed() + self._epoch) % 2**32)
                items = list(self.sampler)
        whole, left = divmod(len(items), self._world_size)
        mine: Iterator[Any] = islice(items, self._rank, None, self._world_size)
        if not self._is_even or not left:
            yield from mine
        elif self._drops:
            yield from islice(mine, whole)
        else:
            yield from mine
            if self._rank >= left:
                yield items[(self._rank - left) % len(items)]

    def __len__(self) -> int:
        whole, left = divmod(len(self.sampler), self._world_size)
        if self._is_even:
            return whole + (left > 0 and not self._drops)
        return whole + (self._rank < left)


def _is_shared(loader: DataLoader[Any], topology: Topology) -> bool:
    """Return whether a loader has a sampler for several processes.

    Raises:
        DataError: it is one for others.
    """
    batch_sampler = loader.batch_sampler
    for sampler in (loader.sampler, batch_sampler, getattr(batch_sampler, "sampler", None)):
        if isinstance(sampler, Share):
            return True
        place = getattr(sampler, "rank", None), getattr(sampler, "num_replicas", None)
        if place == (None, None):
            continue
        if place != (topology.global_rank, topology.world_size):
            raise DataError(
                f"the sampler {sampler!r} gives the share of rank {place[0]} of {place[1]}, and "
                f"this is rank {topology.global_rank} of {topology.world_size}: leave rank and "
                "num_replicas out, or pass Trainer(use_distributed_sampler=False)."
            )
        return True
    return False


def _is_whole(loader: DataLoader[Any]) -> bool:
    """Return whether the loader's sampler gives each sample of the data set once."""
    sampler: Any = loader.sampler
    return len(sampler) == len(loader.dataset)  # type: ignore[arg-type]


def _tell_of_whole(loader: Any) -> None:
    warn(
        f"the loader {shown(loader)} cannot be shared among processes, as it has no indices: let "
        "it give each process its own part, as by trainer.global_rank and trainer.world_size, "
        "and pass Trainer(use_distributed_sampler=False), which leaves out this message.",
        TrainerHooksWarning,
    )


def _seed() -> int:
    """Return the seed that all processes have in common."""
    return int(os.environ.get("PL_GLOBAL_SEED", "0"))
