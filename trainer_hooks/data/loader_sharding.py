"""Shard a loader: give each rank its own samples."""

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
from trainer_hooks.data.loaders import CombinedLoader, copy_loader, describe_loader
from trainer_hooks.errors import DataError, TrainerHooksWarning
from trainer_hooks.runtime.rng import isolated, reseed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainer_hooks.runtime.topology import Topology


def shard_loader(loader: Any, topology: Topology, *, is_training: bool, seed: int) -> Any:
    """Return a loader of this rank's shard of the samples of `loader`.

    Args:
        loader: a loader, or a CombinedLoader, each part of which is sharded.
        topology: the ranks, and which of them this process is.
        is_training: whether all ranks must have equally many batches, so that some samples repeat,
            or are left out with `drop_last`; if not, each sample is on exactly one rank.
        seed: seed of the order, the same on all ranks.

    Raises:
        DataError: its sampler shards it already, for other ranks.
    """
    if isinstance(loader, CombinedLoader):
        return loader.mapped(
            lambda part: shard_loader(part, topology, is_training=is_training, seed=seed)
        )
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        warn(
            f"the loader {describe_loader(loader)} cannot be shared among processes, as it has no "
            "indices: let it give each process its own part, as by trainer.global_rank and "
            "trainer.world_size, and pass Trainer(use_distributed_sampler=False), which leaves out "
            "this message.",
            TrainerHooksWarning,
        )
        return loader
    if _is_sharded(loader, topology):
        return loader
    # a subclass may take other arguments, so that it cannot be copied with another sampler
    if type(loader) is not DataLoader:
        warn(
            f"the loader {describe_loader(loader)} of {topology.world_size} processes is of a "
            "class of its own, so that it is given to each of them whole: let it give each its "
            "share, as with a DistributedSampler.",
            TrainerHooksWarning,
        )
        return loader
    batch_sampler = loader.batch_sampler
    if batch_sampler is not None and type(batch_sampler) is not BatchSampler:
        return copy_loader(
            loader,
            batch_sampler=ShardedSampler(batch_sampler, topology, is_even=is_training, seed=seed),
        )
    sampler: Any = loader.sampler
    # DistributedSampler takes the whole data set without replacement, and repeats samples so
    # that all ranks get equally many: so it stands for such samplers only, in training only.
    if (
        is_training
        and (isinstance(sampler, SequentialSampler) or type(sampler) is RandomSampler)
        and not getattr(sampler, "replacement", False)
        and len(sampler) == len(loader.dataset)  # type: ignore[arg-type]
    ):
        # torch's own sampler where it fits, so that the order equals that of a loop written by
        # hand.
        sharded_sampler: Any = DistributedSampler(
            loader.dataset,
            topology.world_size,
            topology.global_rank,
            shuffle=type(sampler) is RandomSampler,
            seed=seed,
            drop_last=loader.drop_last,
        )
    else:
        sharded_sampler = ShardedSampler(
            sampler,
            topology,
            is_even=is_training,
            drops_last=loader.drop_last and is_training,
            seed=seed,
        )
    return copy_loader(loader, sampler=sharded_sampler)


class ShardedSampler:
    """Every n-th item of a sampler or batch sampler, for n ranks.

    All ranks use the same order: global random generators are seeded by the epoch before it is
    drawn. A generator that the sampler owns must have the same seed on all ranks.

    Args:
        sampler: yields indices, or lists of them.
        topology: the ranks, and which of them this process is.
        is_even: whether all ranks get equally many items; the first items repeat to fill up, or
            with `drops_last` the last are dropped.
        drops_last: see `is_even`.
        seed: seed of the order, the same on all ranks.

    Attributes:
        seed: the seed; a checkpoint holds it.
    """

    def __init__(
        self,
        sampler: Any,
        topology: Topology,
        *,
        is_even: bool,
        drops_last: bool = False,
        seed: int = 0,
    ) -> None:
        self.sampler = sampler
        self.seed = seed
        self._world_size, self._rank = topology.world_size, topology.global_rank
        self._is_even, self._drops_last = is_even, drops_last
        self._epoch = 0
        batch_size = getattr(sampler, "batch_size", None)
        # kept, as torch's BatchSampler has it: checks on resume compare it
        if batch_size is not None:
            self.batch_size = batch_size

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, which seeds the order."""
        self._epoch = epoch
        method = getattr(self.sampler, "set_epoch", None)
        if callable(method):
            method(epoch)

    def __iter__(self) -> Iterator[Any]:
        if isinstance(self.sampler, SequentialSampler):
            items: list[Any] | range = range(len(self.sampler))
        else:
            with isolated():
                # seeded alike on all ranks, so that their shards come from one permutation and are
                # disjoint
                reseed((self.seed + self._epoch) % 2**32)
                items = list(self.sampler)
        # only now: a `yield` inside of `isolated` would let the training draw from this seed
        num_full_rounds, num_remaining = divmod(len(items), self._world_size)
        shard: Iterator[Any] = islice(items, self._rank, None, self._world_size)
        if not self._is_even or not num_remaining:
            yield from shard
        elif self._drops_last:
            yield from islice(shard, num_full_rounds)
        else:
            yield from shard
            # ranks that got one item fewer repeat one from the beginning
            if self._rank >= num_remaining:
                # the remainder, as there may be fewer items than ranks
                yield items[(self._rank - num_remaining) % len(items)]

    def __len__(self) -> int:
        num_full_rounds, num_remaining = divmod(len(self.sampler), self._world_size)
        if self._is_even:
            return num_full_rounds + (num_remaining > 0 and not self._drops_last)
        return num_full_rounds + (self._rank < num_remaining)


def _is_sharded(loader: DataLoader[Any], topology: Topology) -> bool:
    """Return whether a loader has a sampler for several ranks.

    Raises:
        DataError: it is a sampler for other ranks.
    """
    batch_sampler = loader.batch_sampler
    for sampler in (loader.sampler, batch_sampler, getattr(batch_sampler, "sampler", None)):
        if isinstance(sampler, ShardedSampler):
            return True
        # by attributes and not by class: samplers of other libraries have those of
        # DistributedSampler
        rank_of_sampler = getattr(sampler, "rank", None), getattr(sampler, "num_replicas", None)
        if rank_of_sampler == (None, None):
            continue
        if rank_of_sampler != (topology.global_rank, topology.world_size):
            raise DataError(
                f"the sampler {sampler!r} gives the share of rank {rank_of_sampler[0]} of "
                f"{rank_of_sampler[1]}, and "
                f"this is rank {topology.global_rank} of {topology.world_size}: leave rank and "
                "num_replicas out, or pass Trainer(use_distributed_sampler=False)."
            )
        return True
    return False


def common_seed() -> int:
    """Return the seed that all ranks of a new training have in common."""
    # `seed_everything` sets it, and processes that are started later inherit it.
    return int(os.environ.get("PL_GLOBAL_SEED", "0"))
