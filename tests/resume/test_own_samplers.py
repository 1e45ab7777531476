"""Samplers, collate functions and data sets of a user's own are resumed with their attributes."""

from __future__ import annotations

import random

import pytest
import torch
from own_loops import fit_by_run
from quiet_trainers import QUIET_OPTIONS
from samples import spread
from saving_callbacks import SaveEachStep
from torch.utils.data import DataLoader, Dataset, IterableDataset

from trainer_hooks import Callback, Module
from trainer_hooks.errors import TrainerHooksWarning

SAMPLES, EPOCHS = 12, 3


class Data(Dataset):
    """Draws with each sample, as augmentations do, and counts them."""

    def __init__(self, *, draws: bool) -> None:
        self.draws, self.calls = draws, 0

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int):
        self.calls += 1
        noise = torch.rand(1) if self.draws else torch.zeros(1)
        return torch.tensor([float(index)]) + noise, self.calls


class Shuffles:
    """A batch sampler that shuffles its list in place, and has longer batches in later passes."""

    def __init__(self) -> None:
        self.order, self.passes = list(range(SAMPLES)), 0

    def __iter__(self):
        self.passes += 1
        random.shuffle(self.order)
        for place in range(0, SAMPLES, 3):
            yield self.order[place : place + 3][: self.passes + 1]

    def __len__(self) -> int:
        return SAMPLES // 3


class Draws(Shuffles):
    """Draws with each batch, too, from what is left in its own list."""

    def __iter__(self):
        self.left = list(range(SAMPLES))
        for _ in range(len(self)):
            random.shuffle(self.left)
            yield [self.left.pop() for _ in range(3)]


class FollowsWeight(Shuffles):
    """A callback sets the hardness, by which the next batches are chosen."""

    hardness = 0

    def __iter__(self):
        self.hardness += 0
        for place in range(len(self)):
            yield [(place + self.hardness) % SAMPLES, self.hardness % SAMPLES]


class Hardens(Callback):
    def __init__(self, loader) -> None:
        self.loader = loader

    def on_train_batch_end(self, trainer, module, *_) -> None:
        self.loader.batch_sampler.hardness += 3


class Collate:
    """Adds a running sum, which is an attribute."""

    def __init__(self) -> None:
        self.sum = torch.zeros(1)

    def __call__(self, items):
        batch = torch.stack([item for item, _ in items])
        self.sum += batch.sum()
        return batch, self.sum.clone(), torch.tensor([calls for _, calls in items])


class Passes(IterableDataset):
    """Gives other numbers in each pass."""

    def __init__(self) -> None:
        self.passes = 0

    def __iter__(self):
        self.passes += 1
        for number in range(SAMPLES):
            yield torch.tensor([float(number * self.passes)]), self.passes


class Net(Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        torch.nn.init.constant_(self.layer.weight, 0.5)
        torch.nn.init.constant_(self.layer.bias, 0.1)
        self.seen, self.validated = [], []

    def training_step(self, batch, batch_idx):
        self.seen.append([part.tolist() for part in batch])
        return self.layer(batch[0]).square().mean()

    def validation_step(self, batch, batch_idx) -> None:
        self.validated.append([part.tolist() for part in batch])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-4)


def by_batches(sampler, *, draws: bool = True, workers: int = 0):
    return lambda: DataLoader(
        Data(draws=draws), batch_sampler=sampler(), collate_fn=Collate(), num_workers=workers
    )


LOADERS = {
    "shuffles": by_batches(Shuffles),
    "shuffles, no draws in the data": by_batches(Shuffles, draws=False),
    "draws": by_batches(Draws),
    "an iterable": lambda: DataLoader(Passes(), batch_size=3),
    "a sampler": lambda: DataLoader(
        Data(draws=True), batch_size=2, sampler=[*range(5)], collate_fn=Collate()
    ),
}


def check(make, fit, folder, steps) -> None:
    random.seed(1)
    torch.manual_seed(1)
    whole, loader = Net(), make()
    fit(whole, loader, SaveEachStep(folder))
    for step in steps:
        random.seed(1)  # the constructor may draw
        resumed, loader = Net(), make()
        random.seed(7)
        torch.manual_seed(7)
        fit(resumed, loader, path=folder / f"{step}.ckpt")
        assert resumed.seen == whole.seen[step:], step
        assert resumed.validated == whole.validated[len(whole.validated) - len(resumed.validated) :]
        assert torch.equal(resumed.layer.weight, whole.layer.weight)


@pytest.mark.parametrize("name", LOADERS)
def test_a_run_is_resumed_at_each_step(name, bare, tmp_path) -> None:
    """Inside epochs and between two, with the same batches; the validation has such data, too."""

    def fit(net, loader, *callbacks, path=None) -> None:
        trainer = bare(*callbacks, max_epochs=EPOCHS, num_sanity_val_steps=1)
        trainer.fit(net, loader, LOADERS["shuffles"](), ckpt_path=path)

    check(LOADERS[name], fit, tmp_path, [1, 3, 4, 5, 8, 9])


@pytest.mark.parametrize("name", ["shuffles", "an iterable"])
def test_a_loop_of_ones_own_is_resumed(name, tmp_path) -> None:
    """As a fit is."""

    def fit(net, loader, *callbacks, path=None) -> None:
        more = {"callbacks": callbacks, "ckpt_path": path}
        fit_by_run(net, loader, LOADERS["shuffles"](), max_epochs=EPOCHS, **more, **QUIET_OPTIONS)

    check(LOADERS[name], fit, tmp_path, [1, 3, 4, 6])


@pytest.mark.parametrize("draws", [True, False])
def test_a_sampler_that_follows_a_callback_is_resumed_and_told(draws, bare, tmp_path) -> None:
    """Its earlier batches cannot be found again, since they went by earlier values."""
    whole, loader = Net(), by_batches(FollowsWeight, draws=draws)()
    random.seed(1)
    torch.manual_seed(1)
    bare(SaveEachStep(tmp_path), Hardens(loader), max_epochs=2).fit(whole, loader)
    for step in (3, 6):
        resumed, loader = Net(), by_batches(FollowsWeight, draws=draws)()
        with pytest.warns(TrainerHooksWarning, match="(gives other samples|another one)"):
            bare(Hardens(loader), max_epochs=2).fit(
                resumed, loader, ckpt_path=tmp_path / f"{step}.ckpt"
            )
        assert resumed.seen == whole.seen[step:]


@pytest.mark.slow
@pytest.mark.parametrize(("sampler", "draws"), spread([Shuffles, Draws], [True, False]))
def test_workers_are_resumed(sampler, draws, bare, tmp_path) -> None:
    """Whose loader goes through its sampler ahead of the training."""

    def fit(net, loader, *callbacks, path=None) -> None:
        bare(*callbacks, max_epochs=EPOCHS).fit(net, loader, ckpt_path=path)

    make = lambda: DataLoader(Bare(draws=draws), batch_sampler=sampler(), num_workers=2)  # noqa: E731
    check(make, fit, tmp_path, [3, 4])  # an epoch has four: inside of it, and between two


class Bare(Data):
    """Does not give its counts, which each worker has of its own."""

    def __getitem__(self, index: int):
        return super().__getitem__(index)[:1]


HIDDEN = {"passes": 0}


class Hides(Shuffles):
    """Counts its passes in a global variable, which no checkpoint holds."""

    def __iter__(self):
        HIDDEN["passes"] += 1
        yield from ([(place + HIDDEN["passes"]) % SAMPLES] for place in range(4))


@pytest.mark.parametrize("has_length", [True, False])
def test_other_indices_are_told_where_the_data_draw(bare, tmp_path, has_length) -> None:
    """Such batches cannot be compared; if the indices are the same nothing is told."""
    sampler = Hides if has_length else type("Endless", (Hides,), {"__len__": None})
    make = by_batches(sampler)
    HIDDEN["passes"] = 0
    bare(SaveEachStep(tmp_path)).fit(Net(), make())
    with pytest.warns(TrainerHooksWarning, match="gives other samples for the last batch"):
        bare().fit(Net(), make(), ckpt_path=tmp_path / "3.ckpt")
    HIDDEN["passes"] = 0
    bare().fit(Net(), make(), ckpt_path=tmp_path / "3.ckpt")
