"""The data of random configurations: data sets, streams and samplers that draw in many ways."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, get_worker_info

if TYPE_CHECKING:
    from collections.abc import Iterator

BATCH = 4


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# --- data ---


class Noise:
    """Adds random numbers to a sample: global ones of each library, or its own generators'."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.own: Any = None
        if kind == "own generators":
            self.own = [np.random.default_rng(4), random.Random(5), seeded(6)]

    def __call__(self, inputs: Tensor) -> Tensor:
        if self.own is not None:
            numpy, python, torchs = self.own
            return inputs + numpy.normal() + python.random() + torch.randn(3, generator=torchs)
        if self.kind in ("torch", "all"):
            inputs = inputs + torch.randn(3)
        if self.kind in ("numpy", "all"):
            inputs = inputs + torch.from_numpy(np.random.normal(size=3)).float()
        if self.kind in ("python", "all"):
            inputs = inputs + random.gauss(0.0, 1.0)
        return inputs


class Compose:
    """Applies one after another, as transforms are kept in other packages."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts

    def __call__(self, inputs: Tensor) -> Tensor:
        for part in self.parts:
            inputs = part(inputs)
        return inputs


class Numbered(Dataset):
    """Numbered samples: inputs of three numbers, a target, and the number."""

    def __init__(self, count: int, augment: Any = None) -> None:
        self.inputs = torch.arange(count * 3, dtype=torch.float32).reshape(count, 3).sin()
        self.targets = self.inputs.sum(dim=1, keepdim=True)
        self.augment = augment

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor, int]:
        inputs = self.inputs[index]
        return (self.augment(inputs) if self.augment else inputs), self.targets[index], index


class Stream(IterableDataset):
    """The samples in a stream, each worker's share of them; with a length if sized."""

    def __init__(self, samples: Numbered) -> None:
        self.samples = samples

    def numbers(self) -> range:
        worker = get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        return range(first, len(self.samples), step)

    def __iter__(self) -> Iterator[Any]:
        return (self.samples[number] for number in self.numbers())


class SizedStream(Stream):
    def __len__(self) -> int:
        return len(self.samples)


class BufferedStream(Stream):
    """Shuffles through a buffer, drawing from torch's global random numbers."""

    def __iter__(self) -> Iterator[Any]:
        held: list[Any] = []
        for number in self.numbers():
            held.append(self.samples[number])
            if len(held) == 5:
                yield held.pop(int(torch.randint(5, ())))
        while held:
            yield held.pop(int(torch.randint(len(held), ())))


class CountedSamples(Numbered):
    """Samples with a state of their own: how many were taken, which changes them."""

    taken = 0

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor, int]:
        inputs, target, number = super().__getitem__(index)
        self.taken += 1
        return inputs + 0.01 * self.taken, target, number

    def state_dict(self) -> dict[str, Any]:
        return {"taken": self.taken}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.taken = state["taken"]


class PlacedStream(Stream):
    """A stream that keeps its place, and goes on from there after `load_state_dict`."""

    place = resumed_at = 0

    def __iter__(self) -> Iterator[Any]:
        # at once, and not with the first sample: the state may be read before that
        self.place, self.resumed_at = self.resumed_at, 0
        return self._from_place()

    def _from_place(self) -> Iterator[Any]:
        for number in self.numbers()[self.place :]:
            self.place += 1
            yield self.samples[number]

    def state_dict(self) -> dict[str, Any]:
        return {"place": self.place}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.place = self.resumed_at = state["place"]


class OwnIterable:
    """An iterable of batches that is no DataLoader, and draws as it goes."""

    def __init__(self, samples: Numbered) -> None:
        self.samples = samples

    def __iter__(self) -> Iterator[Any]:
        left = list(range(len(self.samples)))
        while left:
            rows = [left.pop(np.random.randint(len(left))) for _ in range(min(BATCH, len(left)))]
            inputs = torch.stack([self.samples[row][0] for row in rows])
            yield inputs, self.samples.targets[rows], torch.tensor(rows)


class SizedIterable(OwnIterable):
    def __len__(self) -> int:
        return -(-len(self.samples) // BATCH)


# --- samplers ---


class Order:
    """A sampler of one's own: at once or as it goes, by global random numbers or its own."""

    def __init__(self, count: int, kind: str) -> None:
        self.count, self.kind, self.epoch = count, kind, 0
        self.torch, self.numpy, self.python = seeded(11), np.random.default_rng(12), None
        if "python" in kind:
            self.python = random.Random(13)

    def set_epoch(self, epoch: int) -> None:
        if self.kind == "by epoch":
            self.epoch = epoch

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        if self.kind == "by epoch":
            return iter(torch.randperm(self.count, generator=seeded(self.epoch)).tolist())
        if self.kind == "at once":
            return iter(torch.randperm(self.count).tolist())
        if self.kind == "numpy at once":
            return iter(np.random.permutation(self.count).tolist())
        return self._as_it_goes()

    def _as_it_goes(self) -> Iterator[int]:
        left = list(range(self.count))
        while left:
            yield left.pop(self._place(len(left)))

    def _place(self, count: int) -> int:
        if self.kind == "own torch generator":
            return int(torch.randint(count, (), generator=self.torch))
        if self.kind == "own numpy generator":
            return int(self.numpy.integers(count))
        if self.python is not None:
            return self.python.randrange(count)
        global_numbers = int(torch.randint(99, ())) + random.randrange(99) + np.random.randint(99)
        return int(global_numbers % count)


class OwnBatches:
    """A batch sampler over an order of one's own."""

    def __init__(self, order: Order) -> None:
        self.order = order

    def __len__(self) -> int:
        return -(-len(self.order) // BATCH)

    def __iter__(self) -> Iterator[list[int]]:
        batch: list[int] = []
        for number in self.order:
            batch.append(number)
            if len(batch) == BATCH:
                yield batch
                batch = []
        if batch:
            yield batch


class ShufflesList:
    """A batch sampler that shuffles the same list in each pass."""

    def __init__(self, count: int) -> None:
        self.rows = list(range(count))

    def __len__(self) -> int:
        return -(-len(self.rows) // BATCH)

    def __iter__(self) -> Iterator[list[int]]:
        random.shuffle(self.rows)
        for place in range(0, len(self.rows), BATCH):
            yield self.rows[place : place + BATCH]


class CountsPasses(ShufflesList):
    """A batch sampler that begins elsewhere in each pass, and moves on with each batch."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.passes, self.moved = 0, torch.zeros(2)

    def __iter__(self) -> Iterator[list[int]]:
        self.passes += 1
        for place in range(0, len(self.rows), BATCH):
            self.moved += self.passes
            first = int(self.moved[0])
            yield [
                (row + first) % len(self.rows)
                for row in range(place, place + BATCH)
                if row < len(self.rows)
            ]


def columns(samples: list[Any]) -> list[Tensor]:
    """Return the batch of torch's own function as columns of tables, which lie apart in memory."""
    inputs, targets, numbers = zip(*samples, strict=True)
    table = torch.cat([torch.stack(inputs), torch.stack(targets)], dim=1)
    return [table[:, :3], table[:, 3:], torch.tensor([(n, n) for n in numbers])[:, 0]]


class Collate:
    """Adds a part of the mean of the batches before, which is its attribute."""

    def __init__(self) -> None:
        self.mean, self.batches = torch.zeros(3), 0

    def __call__(self, samples: list[Any]) -> list[Tensor]:
        inputs, targets, numbers = zip(*samples, strict=True)
        stacked = torch.stack(inputs)
        self.batches += 1
        self.mean = self.mean * 0.9 + stacked.mean(0) * 0.1
        return [stacked + self.mean, torch.stack(targets), torch.tensor(numbers)]
