"""Chains of resumes give the batches of the uncut run, whoever keeps the loader's position."""

from __future__ import annotations

import itertools
import os
import pickle
import random
from itertools import islice
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from samples import one_in
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    WeightedRandomSampler,
    get_worker_info,
)

from trainer_hooks import CombinedLoader, seed_everything
from trainer_hooks.data.loader_sharding import common_seed, shard_loader
from trainer_hooks.data.stream import TrainStream
from trainer_hooks.errors import DataError, TrainerHooksWarning
from trainer_hooks.runtime import rng
from trainer_hooks.runtime.topology import Topology

stateful = pytest.importorskip("torchdata.stateful_dataloader")

# torchdata calls it when it makes a loader, which is not ours to change
pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")

EPOCHS = 3
SAMPLES = 44


class Samples(Dataset):
    """Samples with an index, which may draw random numbers."""

    def __init__(self, *, draws: bool = False) -> None:
        self.draws = draws

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([index, random.random() + torch.rand(()) if self.draws else 0.0])


class CountedSamples(Samples):
    """Samples with a state of their own: how many were taken, which each sample tells."""

    taken = 0

    def __getitem__(self, index: int) -> torch.Tensor:
        self.taken += 1
        return torch.cat([super().__getitem__(index), torch.tensor([float(self.taken)])])

    def state_dict(self) -> dict[str, int]:
        return {"taken": self.taken}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.taken = state["taken"]


class Numbers(IterableDataset):
    """A stream without a state of its own."""

    def __init__(self, *, draws: bool = False) -> None:
        self.draws = draws

    def __iter__(self):
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for number in range(first, SAMPLES, step):
            yield torch.tensor([number, random.random() if self.draws else 0.0])


class SizedNumbers(Numbers):
    def __len__(self) -> int:
        return SAMPLES


class StatefulNumbers(IterableDataset):
    """A stream with a state of its own, in another order in each epoch."""

    def __init__(self, samples: int = SAMPLES, *, draws: bool = False) -> None:
        self.samples, self.draws = samples, draws
        self.epoch = self.place = 0

    def order(self) -> list[int]:
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        order = list(range(first, self.samples, step))
        random.Random(self.epoch).shuffle(order)
        return order

    def __iter__(self):
        order = self.order()
        while self.place < len(order):
            self.place += 1
            number = order[self.place - 1]
            yield torch.tensor([number, random.random() if self.draws else 0.0])
        self.epoch, self.place = self.epoch + 1, 0

    def state_dict(self):
        return {"epoch": self.epoch, "place": self.place}

    def load_state_dict(self, state):
        self.epoch, self.place = state["epoch"], state["place"]


class UnevenNumbers(StatefulNumbers):
    """A stream of which each worker has half as much as the one before."""

    def order(self) -> list[int]:
        info, order = get_worker_info(), super().order()
        return order[: len(order) >> info.id]


class OwnGenerator(StatefulNumbers):
    """A stream that draws from a generator of its own, which is in its state."""

    def __init__(self) -> None:
        super().__init__(40)
        self.generator = generator()

    def __iter__(self):
        for row in super().__iter__():
            yield row + torch.rand(2, generator=self.generator)

    def state_dict(self):
        return {**super().state_dict(), "generator": self.generator.get_state()}

    def load_state_dict(self, state):
        super().load_state_dict(state)
        self.generator.set_state(state["generator"])


class StatefulIterator:
    def __init__(self) -> None:
        self.place = 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.place >= SAMPLES:
            raise StopIteration
        self.place += 1
        return torch.tensor([self.place, 0.0])

    def state_dict(self):
        return {"place": self.place}

    def load_state_dict(self, state):
        self.place = state["place"]


class IteratorNumbers(IterableDataset):
    """A stream whose iterator has the state."""

    def __iter__(self):
        return StatefulIterator()


class Batches:
    """A batch sampler that shuffles."""

    def __len__(self) -> int:
        return 11

    def __iter__(self):
        return iter(torch.randperm(SAMPLES).reshape(11, 4).tolist())


class AsItGoes:
    """A sampler that draws index by index, from the global random numbers or its generator."""

    def __init__(self, generator: torch.Generator | None = None) -> None:
        self.generator = generator

    def __len__(self) -> int:
        return SAMPLES

    def __iter__(self):
        left = list(range(SAMPLES))
        while left:
            place = torch.rand((), generator=self.generator).item()
            if self.generator is None:
                place = (place + random.random() + np.random.normal()) % 1
            yield left.pop(int(place * len(left)))


class BatchesAsTheyGo(AsItGoes):
    """A batch sampler that does so."""

    def __len__(self) -> int:
        return 11

    def __iter__(self):
        order = super().__iter__()
        while batch := list(islice(order, 4)):
            yield batch


class AtOnce(AsItGoes):
    """A sampler that draws its order as it is opened, and not with its first index."""

    def __iter__(self):
        return iter(torch.randperm(SAMPLES, generator=self.generator).tolist())


class Keeping:
    """A loader that keeps its epoch and place itself; faulty ones are made from it.

    Attributes:
        state: the object that `state_dict` returns, which changes as the loader goes on.
    """

    def __init__(self, *, draws: bool = False, sized: bool = True) -> None:
        self.draws, self.sized = draws, sized
        self.state = {"epoch": 0, "place": 0}

    def __len__(self) -> int:
        if not self.sized:
            raise TypeError("no length")
        return 11

    def state_dict(self) -> dict[str, int]:
        return self.state

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.state = dict(state)

    def order(self) -> list[int]:
        return random.Random(self.state["epoch"]).sample(range(SAMPLES), SAMPLES)

    def __iter__(self):
        order = self.order()
        while self.state["place"] < 11:
            rows = order[self.state["place"] * 4 :][:4]
            self.state["place"] += 1
            noise = [random.random() for _ in rows] if self.draws else [0.0] * len(rows)
            yield torch.tensor([rows, noise])
        self.state = {"epoch": self.state["epoch"] + 1, "place": 0}


class OffByOne(Keeping):
    def load_state_dict(self, state):
        self.state = {**state, "place": state["place"] + 1}


class ForgetsPlace(Keeping):
    def load_state_dict(self, state):
        self.state = {**state, "place": 0}


class ForgetsEpoch(Keeping):
    def load_state_dict(self, state):
        self.state = {"epoch": 0, "place": state["place"]}


class AnotherEpoch(Keeping):
    def load_state_dict(self, state):
        self.state = {**state, "epoch": state["epoch"] + 1}


class CountsTwice(Keeping):
    """What it saves after a load is too far."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.loaded = 0

    def state_dict(self):
        return {**self.state, "place": self.state["place"] + self.loaded}

    def load_state_dict(self, state):
        super().load_state_dict(state)
        self.loaded = state["place"]


class Prefetches(Keeping):
    """Its state has the batches that it has read ahead, too."""

    def __iter__(self):
        ahead = super().__iter__()
        held = list(islice(ahead, 2))
        for batch in ahead:
            held.append(batch)
            yield held.pop(0)
        yield from held


class OrderOfTheMoment(Keeping):
    """Its order is drawn anew in each epoch, and no state holds it."""

    def order(self):
        return torch.randperm(SAMPLES).tolist()


class Refuses(Keeping):
    """It ends where it should go on."""

    def load_state_dict(self, state):
        self.state = {**state, "place": 11}


def torchdata(data: Any, **kwargs: Any) -> Any:
    return stateful.StatefulDataLoader(data, batch_size=4, **kwargs)


def by(sampler: Any, **kwargs: Any) -> Any:
    return torchdata(Samples(), sampler=sampler, **kwargs)


def shared(**kwargs: Any) -> Any:
    """Return rank 1's shard of a loader; each process of a chain has another seed."""
    loader = DataLoader(Samples(), **kwargs)
    topology = Topology(global_rank=1, local_rank=1, world_size=2)
    return shard_loader(loader, topology, is_training=True, seed=common_seed())


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(7)


RIGHT = {
    "map": lambda: DataLoader(Samples(draws=True), batch_size=4, shuffle=True),
    "map with a generator": lambda: DataLoader(
        Samples(), batch_size=4, shuffle=True, generator=generator()
    ),
    "stream": lambda: DataLoader(Numbers(draws=True), batch_size=4),
    "list": lambda: [torch.tensor([float(number)]) for number in range(9)],
    "torchdata map": lambda: torchdata(Samples(), shuffle=True),
    "torchdata map that draws": lambda: torchdata(Samples(draws=True), shuffle=True),
    "torchdata map with a generator": lambda: torchdata(
        Samples(), shuffle=True, generator=generator()
    ),
    "torchdata distributed": lambda: by(DistributedSampler(Samples(), 2, 0)),
    "torchdata stream": lambda: torchdata(Numbers()),
    "torchdata stream that draws": lambda: torchdata(Numbers(draws=True)),
    "torchdata sized stream": lambda: torchdata(SizedNumbers()),
    "torchdata stateful stream": lambda: torchdata(StatefulNumbers()),
    "torchdata stateful stream that draws": lambda: torchdata(StatefulNumbers(draws=True)),
    "torchdata stateful iterator": lambda: torchdata(IteratorNumbers()),
    "sampler": lambda: DataLoader(Samples(), 4, sampler=AsItGoes()),
    "stream, combined with one that starts again": lambda: CombinedLoader(
        [DataLoader(Numbers(draws=True), 2), DataLoader(Samples(draws=True), 8, shuffle=True)],
        "max_size_cycle",
    ),
    "streams one after another": lambda: CombinedLoader(
        [DataLoader(Numbers(draws=True), 4), DataLoader(Samples(), 4, shuffle=True)], "sequential"
    ),
    "sized, combined with a shorter stream": lambda: CombinedLoader(
        [DataLoader(Samples(draws=True), 1, shuffle=True), DataLoader(Numbers(draws=True), 4)],
        "min_size",
    ),
    "own state": Keeping,
    "own state, draws": lambda: Keeping(draws=True),
    "own state, no length": lambda: Keeping(sized=False),
    "own state, no length, draws": lambda: Keeping(sized=False, draws=True),
    "shared": lambda: shared(batch_size=4, shuffle=True),
    "shared by weight": lambda: shared(
        batch_size=4, sampler=WeightedRandomSampler([1.0] * SAMPLES, SAMPLES)
    ),
    "shared batches": lambda: shared(batch_sampler=Batches()),
    "shared by the user": lambda: DataLoader(
        Samples(), 4, sampler=DistributedSampler(Samples(), 2, 0, seed=common_seed())
    ),
    "shared and combined": lambda: CombinedLoader(
        [shared(batch_size=4, shuffle=True), shared(batch_size=8, shuffle=True)], "min_size"
    ),
    "combined": lambda: CombinedLoader(
        [Keeping(), torchdata(Numbers()), torchdata(Samples(), shuffle=True)], "max_size_cycle"
    ),
    "combined, one after another": lambda: CombinedLoader(
        [Keeping(), torchdata(SizedNumbers())], "sequential"
    ),
}
"""Loaders that are resumed exactly without a word."""

SAMPLERS: dict[str, Any] = {
    "as it goes": lambda: {"sampler": AsItGoes(), "batch_size": 4},
    "as it goes by a generator": lambda: {"sampler": AsItGoes(generator()), "batch_size": 4},
    "at once": lambda: {"sampler": AtOnce(), "batch_size": 4},
    "at once by a generator": lambda: {"sampler": AtOnce(generator()), "batch_size": 4},
    "at once, single": lambda: {"sampler": AtOnce(), "batch_size": None},
    "at once by a generator, single": lambda: {"sampler": AtOnce(generator()), "batch_size": None},
    "batches": lambda: {"batch_sampler": Batches()},
    "batches as they go": lambda: {"batch_sampler": BatchesAsTheyGo()},
    "batches as they go by a generator": lambda: {"batch_sampler": BatchesAsTheyGo(generator())},
    "batches of torch": lambda: {
        "batch_sampler": BatchSampler(RandomSampler(range(SAMPLES)), 4, drop_last=False)
    },
    "with replacement by a generator": lambda: {
        "sampler": RandomSampler(range(SAMPLES), replacement=True, generator=generator()),
        "batch_size": 4,
    },
    "weighted": lambda: {
        "sampler": WeightedRandomSampler([1.0] * SAMPLES, SAMPLES),
        "batch_size": 4,
    },
}
"""Arguments of a loader that say in which order it gives the samples."""

WITH_WORKERS = {
    "stream": lambda: torchdata(Numbers(), num_workers=2),
    "sized stream, persistent": lambda: torchdata(
        SizedNumbers(), num_workers=1, persistent_workers=True
    ),
    "stateful stream, persistent": lambda: torchdata(
        StatefulNumbers(40), num_workers=2, persistent_workers=True
    ),
    "stateful stream that draws, persistent": lambda: torchdata(
        StatefulNumbers(40, draws=True), num_workers=2, persistent_workers=True
    ),
    # Its last batch takes the data set to the next epoch, where torchdata goes on after a load.
    "stateful stream, short at the end": lambda: torchdata(StatefulNumbers(), num_workers=2),
    "stateful stream, short at the end, persistent": lambda: torchdata(
        StatefulNumbers(), num_workers=2, persistent_workers=True
    ),
    "stateful stream that draws, short at the end, persistent": lambda: torchdata(
        StatefulNumbers(draws=True), num_workers=2, persistent_workers=True
    ),
    "stateful stream with a generator, persistent": lambda: torchdata(
        OwnGenerator(), num_workers=2, persistent_workers=True
    ),
    "stateful stream, uneven": lambda: torchdata(UnevenNumbers(), num_workers=2),
    "stateful stream, uneven, sample by sample": lambda: stateful.StatefulDataLoader(
        UnevenNumbers(16), batch_size=None, num_workers=2
    ),
    "stateful iterator, persistent": lambda: torchdata(
        IteratorNumbers(), num_workers=2, persistent_workers=True
    ),
    "stateful map, persistent": lambda: torchdata(
        CountedSamples(), shuffle=True, num_workers=2, persistent_workers=True
    ),
    "stateful map that draws, persistent": lambda: torchdata(
        CountedSamples(draws=True), shuffle=True, num_workers=2, persistent_workers=True
    ),
    "stream that draws": lambda: torchdata(Numbers(draws=True), num_workers=2),
    "stream that draws, persistent": lambda: torchdata(
        Numbers(draws=True), num_workers=1, persistent_workers=True
    ),
    "seldom snapshots": lambda: torchdata(
        Samples(), shuffle=True, num_workers=2, snapshot_every_n_steps=3
    ),
    "weighted": lambda: by(WeightedRandomSampler([1.0] * SAMPLES, SAMPLES), num_workers=1),
}
"""The same, with workers."""

FAULTY: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        OffByOne, ForgetsPlace, ForgetsEpoch, AnotherEpoch, CountsTwice, Prefetches,
        OrderOfTheMoment, Refuses,
    )
}  # fmt: skip
FAULTY |= {
    "OffByOne that draws": lambda: OffByOne(draws=True),
    "CountsTwice without length": lambda: CountsTwice(sized=False),
    "Prefetches without length": lambda: Prefetches(sized=False),
    "CountsTwice that draws without length": lambda: CountsTwice(sized=False, draws=True),
    "torch's sampler": lambda: by(RandomSampler(Samples())),
    "torch's sampler and draws": lambda: torchdata(
        Samples(draws=True), sampler=RandomSampler(Samples())
    ),
    # At the start of an epoch its state is that of the end of the epoch before.
    "torchdata stateful distributed": lambda: by(
        stateful.sampler.StatefulDistributedSampler(Samples(), 2, 1)
    ),
}
"""Loaders whose state does not always lead back to their position."""


def train(make: Any, cuts: set[int], epochs: int = EPOCHS) -> list[Any]:
    """Go through the epochs of a loader; at each cut go on with another one from a saved state.

    A cut may be before an epoch is opened, before its first batch, and after each batch. The
    training draws random numbers for each batch.
    """
    seed_everything(3, verbose=False)
    stream, batches, moment = TrainStream(make()), [], 0

    def cut(epoch: int, done: int) -> Any:
        """Return the iterator that goes on here, after a cut if there is one now."""
        nonlocal stream, moment
        moment += 1
        if moment not in cuts:
            return None
        saved = pickle.dumps((stream.state_dict(), rng.capture()))
        seed_everything(100 + moment, verbose=False)
        state, numbers = pickle.loads(saved)
        # as at the end of a run: workers of a loader that the collector finds take 5 s to end
        stream.release()
        stream = TrainStream(make())
        stream.require_same(state)
        iterator = None
        if state["opened_with"]:
            iterator = stream.reopen(epoch, done, state)
        else:
            stream.restore_between(state)
        rng.restore(numbers)
        return iterator or stream.open(epoch)

    for epoch in range(epochs):
        cut(epoch, 0)
        iterator, done = stream.open(epoch), 0
        iterator = cut(epoch, 0) or iterator
        while done < stream.num_batches:
            batch = next(iterator, None)
            if batch is None:
                raise DataError("the same batches: none is left")
            stream.last.keep(batch)
            batches.append(as_lists(batch))
            torch.rand(2), random.random()
            done += 1
            iterator = cut(epoch, done) or iterator
        del iterator
        stream.close(is_complete=True)
    stream.release()
    batches.append(moment)
    return batches


def draw_cuts(seed: str, moments: int, most: int = 6) -> set[int]:
    """Draw one moment to `most` of them."""
    source = random.Random(seed)
    return set(source.sample(range(1, moments + 1), source.randint(1, most)))


def as_lists(batch: Any) -> Any:
    return batch.tolist() if isinstance(batch, torch.Tensor) else [*map(as_lists, batch)]


@pytest.fixture(autouse=True)
def as_before():
    """Leave the global random numbers as they were."""
    with rng.isolated(), patch.dict(os.environ):
        yield


def check(name: str, make: Any, chains: int) -> None:
    uncut = train(make, set())
    for seed in range(chains):
        cuts = draw_cuts(f"{name} {seed}", uncut[-1])
        assert train(make, cuts) == uncut, sorted(cuts)


@pytest.mark.slow
@pytest.mark.parametrize("name", one_in(3, RIGHT))
def test_drawn_chains_of_resumes_give_the_batches_of_the_uncut_run(name):
    """One to six resumes, inside epochs and between them."""
    check(name, RIGHT[name], 8)


@pytest.mark.slow
@pytest.mark.parametrize("draws", [False, True], ids=["", "samples draw"])
@pytest.mark.parametrize("kind", [DataLoader, stateful.StatefulDataLoader])
@pytest.mark.parametrize("name", one_in(4, SAMPLERS))
def test_chains_with_samplers_that_draw(name, kind, draws):
    """The order comes again, and what samples draw, whoever keeps the position in it."""
    check(name, lambda: kind(Samples(draws=draws), **SAMPLERS[name]()), 4)


# half of all, in which any three choices of a sampler's loader come together in each way
AHEAD = [
    (name, kind, persistent, draws, workers)
    for name, kind, persistent, draws, workers in itertools.product(
        SAMPLERS, (DataLoader, stateful.StatefulDataLoader), (False, True), (False, True), (1, 2)
    )
    if (persistent + draws + workers + (kind is DataLoader)) % 2
]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "kind", "persistent", "draws", "workers"), AHEAD)
def test_chains_with_samplers_that_draw_ahead_of_workers(name, kind, persistent, draws, workers):
    """So they do where the order is drawn ahead of the batches that workers load."""

    def make():
        options = {"num_workers": workers, "persistent_workers": persistent}
        return kind(Samples(draws=draws), **SAMPLERS[name](), **options)

    # each epoch of a chain, and each resume, starts the workers, which is most of the time
    uncut = train(make, set(), 2)
    cuts = draw_cuts(f"{name} {kind.__name__} {persistent} {draws} {workers}", uncut[-1], most=3)
    assert train(make, cuts, 2) == uncut, sorted(cuts)


@pytest.mark.slow
@pytest.mark.parametrize("name", one_in(18, WITH_WORKERS))
def test_drawn_chains_with_workers_give_the_batches_of_the_uncut_run(name):
    """The same, with up to two workers."""
    check(name, WITH_WORKERS[name], 2)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*was not led back to its position:UserWarning")
@pytest.mark.parametrize("name", one_in(3, FAULTY))
def test_a_loader_that_miscounts_is_told_or_resumed_exactly(name):
    """Whatever its state leads to, no resume goes on with other batches without an error."""
    uncut, errors = train(FAULTY[name], set()), []
    for seed in range(12):
        cuts = draw_cuts(f"{name} {seed}", uncut[-1])
        try:
            batches = train(FAULTY[name], cuts)
        except DataError as error:
            errors.append(str(error))
        else:
            assert batches == uncut, sorted(cuts)
    assert all("position" in error or "the same batches" in error for error in errors)
    assert len(errors) < 12 or name != "OrderOfTheMoment"


def test_the_error_names_the_loader_and_the_remedy():
    """A loader that no load leads back is an error, not another training."""
    with (
        pytest.warns(TrainerHooksWarning, match=r"AnotherEpoch object.* was not led back"),
        pytest.raises(
            DataError, match=r"AnotherEpoch object.* Mend state_dict and load_state_dict"
        ),
    ):
        train(AnotherEpoch, {5})


def test_positions_are_read_seldom():
    """The state of a loader that draws nothing is read for one batch in thirty-two."""

    class Counted(Keeping):
        asked = 0

        def state_dict(self):
            Counted.asked += 1
            return super().state_dict()

    class Long(Counted):
        def __len__(self):
            return 200

        def __iter__(self):
            for number in range(200):
                self.state["place"] = number
                yield number

    list(TrainStream(Long()).open(0))
    assert Counted.asked < 15


def test_a_resumed_epoch_records_the_positions_of_the_uncut_one():
    """A checkpoint after a resume is the same, wherever that was."""

    def make():
        return torchdata(range(200))

    def position(stream: TrainStream) -> int:
        return stream.state_dict()["position"]["batches"]

    stream = TrainStream(make())
    expected, states = [], []
    for batch in stream.open(0):
        stream.last.keep(batch)
        states.append(pickle.dumps(stream.state_dict()))
        expected.append(position(stream))
    for cut in (1, 2, 3, 20, 36, 37):
        resumed = TrainStream(make())
        positions = [
            position(resumed) for _ in resumed.reopen(0, cut, pickle.loads(states[cut - 1]))
        ]
        assert positions == expected[cut:], cut


def test_a_resumed_epoch_still_records_the_position_of_each_batch_that_draws():
    """So its batches can be compared with what they were, although few of them were observed."""
    stream = TrainStream(Keeping(draws=True))
    batches = stream.open(0)
    for _ in range(6):
        stream.last.keep(next(batches))
    resumed = TrainStream(Keeping(draws=True))
    batches = resumed.reopen(0, 6, pickle.loads(pickle.dumps(stream.state_dict())))
    for number in (6, 7):
        next(batches)
        assert resumed.state_dict()["position"]["batches"] == number


@pytest.mark.slow
def test_a_stream_loses_no_sample_as_persistent_workers_start():
    """The first epoch has each sample of a stream with a state once."""
    loader = torchdata(StatefulNumbers(40), num_workers=2, persistent_workers=True)
    stream = TrainStream(loader)
    rows = [row for batch in stream.open(0) for row in as_lists(batch)]
    assert sorted(row[0] for row in rows) == list(range(40))
    stream.release()


@pytest.mark.slow
def test_a_map_with_a_state_begins_with_its_first_samples():
    """No sample is taken and dropped as persistent workers start."""
    loader = torchdata(CountedSamples(), shuffle=True, num_workers=1, persistent_workers=True)
    stream = TrainStream(loader)
    rows = [row for epoch in range(2) for batch in stream.open(epoch) for row in as_lists(batch)]
    assert [row[2] for row in rows] == [*range(1, 2 * SAMPLES + 1)]
    stream.release()


def test_a_part_that_forgets_its_epoch_is_told_inside_an_epoch():
    """Of several combined loaders, the one that has restored its own state is named."""

    def make():
        return CombinedLoader([ForgetsEpoch(), DataLoader(Samples(), 2)], "max_size_cycle")

    with pytest.raises(DataError, match=r"the training loader <.*ForgetsEpoch object"):
        # the second epoch of 22 batches, after its third batch
        train(make, {24 + 5})


def test_a_position_inside_a_batch_is_that_before_it():
    """The batch of an exception is trained again, and not left out."""
    stream = TrainStream(Keeping())
    iterator = stream.open(0)
    batches = [next(iterator) for _ in range(4)]
    state = pickle.loads(pickle.dumps(stream.state_dict(inside_batch=True)))
    rest = TrainStream(Keeping()).reopen(0, 3, state)
    assert as_lists(next(rest)) == as_lists(batches[3])
