"""Loaders that keep their own position, torchdata's and others, alone and combined."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from samples import one_in
from torch.utils.data import IterableDataset

from trainer_hooks import CombinedLoader

# torchdata calls it when it makes a loader, which is not ours to change
pytestmark = [
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning"),
    # of several loaders, one of which begins again
    pytest.mark.filterwarnings("ignore:the first dimensions of the tensors in a batch disagree"),
]


def augment(inputs):
    return inputs + torch.randn(3) + float(np.random.normal()) + random.gauss(0.0, 1.0)


class Numbers(IterableDataset):
    """Samples in a stream that knows its own place."""

    def __init__(self, samples: Any) -> None:
        self.samples = samples
        self.place = 0

    def __iter__(self):
        while self.place < len(self.samples):
            self.place += 1
            yield self.samples[self.place - 1]
        self.place = 0

    def state_dict(self):
        return {"place": self.place}

    def load_state_dict(self, state):
        self.place = state["place"]


class Keeping:
    """A loader that keeps its epoch and place itself."""

    def __init__(self, samples: Any, length: int = 5) -> None:
        self.samples, self.length = samples, length
        self.epoch = self.place = 0

    def __len__(self) -> int:
        return self.length

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch, "place": self.place}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.epoch, self.place = state["epoch"], state["place"]

    def __iter__(self):
        order = torch.randperm(20, generator=torch.Generator().manual_seed(self.epoch)).tolist()
        while self.place < self.length:
            rows = order[self.place * 4 : self.place * 4 + 4]
            self.place += 1
            yield self.samples.inputs[rows], self.samples.targets[rows], torch.tensor(rows)
        self.epoch, self.place = self.epoch + 1, 0


@pytest.fixture
def make_loader(kit):
    """Make a StatefulDataLoader of five batches."""
    stateful = pytest.importorskip("torchdata.stateful_dataloader")

    def make(count: int = kit.SAMPLES, data: Any = None, **kwargs: Any) -> Any:
        data = kit.Samples(count) if data is None else data
        kwargs = {"shuffle": not isinstance(data, IterableDataset), **kwargs}
        return stateful.StatefulDataLoader(data, batch_size=4, **kwargs)

    return make


def shuffled(kit, make, **workers):
    val = make(7, **workers)
    return kit.Setup(kit.Net(), make(**workers), val)


def with_generator(kit, make, **workers):
    return kit.Setup(kit.Net(), make(generator=torch.Generator().manual_seed(3), **workers))


def augmented(kit, make, **workers):
    data = kit.Samples(augment=augment)
    return kit.Setup(kit.Net(), make(data=data, **workers))


def stream_with_state(kit, make, **workers):
    data = Numbers(kit.Samples(11 if workers else 18, augment=augment))
    return kit.Setup(kit.Net(), make(data=data, **workers))


def limited(kit, make, **workers):
    data = kit.Samples(augment=augment)
    options = {"limit_train_batches": 3}
    return kit.Setup(kit.Net(), make(data=data, **workers), None, options)


def combined(kit, make, mode: str = "max_size_cycle", **workers):
    data = kit.Samples(9, augment=augment)
    loaders = [make(**workers), make(data=data, **workers)]
    if mode != "min_size":  # it goes on where it was left, so that its next epoch would be short
        loaders.append(Keeping(kit.Samples(20)))
    return kit.Setup(kit.PairNet(), CombinedLoader(loaders, mode))


def combined_min_size(kit, make, **workers):
    return combined(kit, make, "min_size", **workers)


def combined_max_size(kit, make, **workers):
    return combined(kit, make, "max_size", **workers)


SCENARIOS = [
    shuffled,
    with_generator,
    augmented,
    stream_with_state,
    limited,
    combined,
    combined_min_size,
    combined_max_size,
]


@pytest.mark.slow
@pytest.mark.parametrize("scenario", one_in(4, SCENARIOS), ids=lambda scenario: scenario.__name__)
def test_a_stateful_loader_is_resumed_exactly(scenario, lab, kit, make_loader):
    """torchdata's loader, alone or among others, goes on from its own position."""
    assert lab.check(lambda: scenario(kit, make_loader)) >= 9


@pytest.mark.slow
@pytest.mark.parametrize("persistent", one_in(2, [False, True]), ids=["anew", "persistent"])
@pytest.mark.parametrize(
    "scenario", one_in(6, SCENARIOS[:6]), ids=lambda scenario: scenario.__name__
)
def test_a_stateful_loader_with_workers_is_resumed_exactly(
    scenario, persistent, lab, kit, make_loader
):
    """With workers too, whether they draw random numbers or not, and started once or each epoch."""

    def make():
        made = scenario(kit, make_loader, num_workers=2, persistent_workers=persistent)
        made.options["max_epochs"] = 2
        return made

    assert lab.check(make, drawn=3) >= 6


def test_a_position_is_not_asked_for_before_the_first_epoch(lab, kit):
    """Saving before anything was opened leaves the loader alone, and is resumed from the start."""
    asked = []

    class Watched(Keeping):
        def state_dict(self):
            asked.append(self.place)
            return super().state_dict()

    uncut = lab.run(lambda: kit.Setup(kit.Net(), Watched(kit.Samples(20))), "uncut")
    assert asked[0] == 0
    assert uncut.trainer.progress.batches_completed == 15
