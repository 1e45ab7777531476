"""A rank's share of a loader: the samples that it gives, and their order."""

from __future__ import annotations

import pytest
from torch.utils.data import DataLoader

from trainer_hooks.data.loader_sharding import shard_loader
from trainer_hooks.data.loaders import set_epoch
from trainer_hooks.runtime.topology import Topology


class Ranked:
    """A sampler of the user's with an order of its own, the same in each epoch."""

    order = (5, 0, 3, 1, 7, 2, 6, 4)

    def __iter__(self):
        return iter(self.order)

    def __len__(self) -> int:
        return len(self.order)


@pytest.mark.parametrize("is_training", [True, False])
def test_the_order_of_a_sampler_is_kept_over_two_ranks(is_training) -> None:
    """The ranks take turns in the sampler's order: nothing is shuffled, in any epoch."""
    for rank in range(2):
        topology = Topology(2, rank, rank, 0, 2, "test")
        loader = DataLoader(range(8), 2, sampler=Ranked())
        share = shard_loader(loader, topology, is_training=is_training, seed=0)
        for epoch in range(3):
            set_epoch(share, epoch)
            assert [index for batch in share for index in batch.tolist()] == [
                *Ranked.order[rank::2]
            ]
