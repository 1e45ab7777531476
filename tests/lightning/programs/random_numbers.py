"""Random numbers of data and training at the same seed: what draws them, and in which order."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler

from programs import differs, error


def _drawn() -> list[float]:
    """Draw one number from each library."""
    return [round(torch.rand(()).item(), 6), round(random.random(), 6), round(np.random.rand(), 6)]


class _Stream(IterableDataset):
    """It draws as it is opened, and for each item."""

    def __iter__(self):
        yield torch.tensor(_drawn())
        for _ in range(5):
            yield torch.tensor(_drawn())


class _SizedStream(_Stream):
    def __len__(self) -> int:
        return 6


class _Samples(Dataset):
    def __init__(self, draws: bool) -> None:
        self.draws = draws

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([index, *(_drawn() if self.draws else [])])


class _Sampler:
    """It draws as it is opened, or index by index."""

    def __init__(self, *, at_once: bool) -> None:
        self.at_once = at_once

    def __len__(self) -> int:
        return 6

    def __iter__(self):
        if self.at_once:
            return iter(np.random.permutation(6).tolist())
        return (int(6 * torch.rand(())) for _ in range(6))


class _BatchSampler(_Sampler):
    def __len__(self) -> int:
        return 3

    def __iter__(self):
        order = list(super().__iter__()) if self.at_once else super().__iter__()
        if self.at_once:
            return iter([order[start : start + 2] for start in (0, 2, 4)])
        return ([first, second] for first, second in zip(order, order, strict=True))


def _collate(samples: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack(samples) + torch.rand(())


def _trained(x: Any, train: Any, val: Any = None, **options: Any) -> dict[str, Any]:
    """Fit for two epochs; tell the numbers that the batches and steps got, in order."""
    x.package.seed_everything(3)
    seen: list[Any] = []

    class Net(x.Net):
        def training_step(self, batch, batch_idx):
            seen.append(["train", _rounded(batch), _drawn()])
            return self.cost(torch.ones(1, 2))

        def validation_step(self, batch, batch_idx):
            seen.append(["validate", _rounded(batch), _drawn()])

    x.trainer(max_epochs=2, **options).fit(Net(), train, val)
    return {"seen": seen, "after": _drawn()}


def _rounded(batch: Any) -> Any:
    if isinstance(batch, torch.Tensor):
        return [round(number, 5) for number in batch.flatten().tolist()]
    return {name: _rounded(part) for name, part in batch.items()}


def streams(x):
    """An IterableDataset draws from torch, random and NumPy, as its length is known or not."""
    return {
        "unknown": _trained(x, DataLoader(_Stream(), 2)),
        "known": _trained(x, DataLoader(_SizedStream(), 2)),
        "single": _trained(x, DataLoader(_Stream(), None)),
    }


def streams_in_workers(x):
    """So it does in two workers."""
    return {
        "unknown": _trained(x, DataLoader(_Stream(), 2, num_workers=2)),
        "known": _trained(x, DataLoader(_SizedStream(), 2, num_workers=2)),
    }


def own_samplers(x):
    """A sampler of one's own draws at once or as it goes, alone and ahead of workers."""
    found = {}
    for at_once in (False, True):
        for workers in (0, 2):
            options = {"num_workers": workers}
            name = f"{at_once} {workers}"
            loader = DataLoader(_Samples(True), 2, sampler=_Sampler(at_once=at_once), **options)
            found[f"sampler {name}"] = _trained(x, loader)
            batches = _BatchSampler(at_once=at_once)
            loader = DataLoader(_Samples(False), batch_sampler=batches, **options)
            found[f"batches {name}"] = _trained(x, loader)
    return found


def random_samplers(x):
    """torch's own order, with and without a generator, in this process and in workers."""
    found = {}
    for workers in (0, 2):
        options: dict[str, Any] = {"batch_size": 2, "num_workers": workers}
        found[f"shuffle {workers}"] = _trained(
            x, DataLoader(_Samples(True), shuffle=True, **options)
        )
        generator = torch.Generator().manual_seed(4)
        loader = DataLoader(_Samples(True), shuffle=True, generator=generator, **options)
        found[f"generator {workers}"] = _trained(x, loader)
        generator = torch.Generator().manual_seed(4)
        sampler = RandomSampler(range(6), replacement=True, generator=generator)
        found[f"replacement {workers}"] = _trained(
            x, DataLoader(_Samples(True), sampler=sampler, **options)
        )
    return found


def collate_functions(x):
    """A collate function draws after the samples."""
    return {
        "here": _trained(x, DataLoader(_Samples(True), 2, collate_fn=_collate)),
        "workers": _trained(x, DataLoader(_Samples(True), 2, collate_fn=_collate, num_workers=2)),
    }


def validation_in_between(x):
    """Validations between batches open their loaders and draw; the check before leaves no trace."""
    found = {}
    for name, train in (("map", _Samples(True)), ("stream", _SizedStream())):
        loaders = DataLoader(train, 2), DataLoader(_Samples(True), 3, shuffle=True)
        found[name] = _trained(x, *loaders, val_check_interval=1, num_sanity_val_steps=2)
    return found


def several_loaders(x):
    """Loaders of a dict are opened and opened again, and draw, one after another."""
    loaders = {"a": DataLoader(_Samples(True), 1), "b": DataLoader(_Samples(True), 2, shuffle=True)}
    return _trained(x, loaders)


@differs("`seed_everything(7.5)`", half=("none", error("ValueError")))
def seeds_that_are_no_integers(x):
    """A seed with a part after the point, and texts."""
    seed = x.package.seed_everything
    return {
        "half": x.error(lambda: seed(7.5)),
        "text": seed("7"),
        "word": x.error(lambda: seed("x")),
    }


@differs(
    "A training loader that `reload_dataloaders_every_n_epochs` makes anew",
    orders=(
        [[1, 4, 3, 5, 2, 0], [3, 2, 5, 4, 0, 1], [3, 2, 5, 4, 0, 1]],
        [[1, 4, 3, 5, 2, 0], [1, 4, 3, 5, 2, 0], [1, 4, 3, 5, 2, 0]],
    ),
)
def loaders_made_anew(x):
    """Each loader has a generator of the same seed."""
    orders = []

    class Net(x.Net):
        def train_dataloader(self):
            orders.append([])
            generator = torch.Generator().manual_seed(4)
            return DataLoader(_Samples(False), 2, shuffle=True, generator=generator)

        def training_step(self, batch, batch_idx):
            orders[-1] += batch.flatten().int().tolist()
            return self.cost(torch.ones(1, 2))

    x.trainer(max_epochs=3, reload_dataloaders_every_n_epochs=1).fit(Net())
    return {"orders": orders}
