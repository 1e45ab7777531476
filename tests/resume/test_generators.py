"""Generators that data sets keep out of the way are put back by a resume."""

from __future__ import annotations

import functools
import random

import numpy as np
import pytest
import torch
from samples import one_in
from torch.utils.data import ConcatDataset, DataLoader, Subset, random_split
from torch.utils.data import default_collate as collate

from trainer_hooks import Callback


class Noise:
    def __init__(self) -> None:
        self.rng = np.random.default_rng(1)

    def __call__(self, inputs):
        return inputs + self.rng.random()


class Compose:
    def __init__(self, *parts) -> None:
        self.parts = parts

    def __call__(self, inputs):
        for part in self.parts:
            inputs = part(inputs)
        return inputs


class Slotted:
    __slots__ = ("rng",)

    def __init__(self) -> None:
        self.rng = random.Random(1)

    def __call__(self, inputs):
        return inputs + self.rng.random()


def noisy(generator, inputs):
    return inputs + torch.randn(3, generator=generator)


def closure():
    generator = random.Random(2)
    return lambda inputs: inputs + generator.random()


def noisy_batch(rng, items):
    inputs, *others = collate(items)
    return [inputs + rng.random(), *others]


def subset(kit):
    return Subset(kit.Samples(augment=Compose(Noise())), range(18))


def concatenated(kit):
    parts = [kit.Samples(9, augment=Compose(Noise())) for _ in range(2)]
    return ConcatDataset([Subset(part, range(9)) for part in parts])


def split(kit):
    generator = torch.Generator().manual_seed(4)
    return random_split(kit.Samples(augment=Compose(Noise())), [16, 2], generator)[0]


def slots(kit):
    return kit.Samples(augment=Compose(Slotted()))


def partial(kit):
    return kit.Samples(augment=functools.partial(noisy, torch.Generator().manual_seed(3)))


def closed_over(kit):
    return kit.Samples(augment=Compose(closure()))


def bound_method(kit):
    return kit.Samples(augment=Noise().__call__)


def collated(kit):
    return kit.Samples()


_DATA = [subset, concatenated, split, slots, partial, closed_over, bound_method, collated]
_WORKERS = {
    "worker": {"num_workers": 1},
    "persistent worker": {"num_workers": 1, "persistent_workers": True},
}
_WITHOUT_WORKERS = [pytest.param(data, {}, id=data.__name__) for data in _DATA]
_WITH_WORKERS = [
    pytest.param(data, options, marks=pytest.mark.slow, id=f"{data.__name__}-{name}")
    for name, options in _WORKERS.items()
    for data in _DATA
]


@pytest.mark.parametrize(
    ("data", "workers"),
    [*one_in(4, _WITHOUT_WORKERS, otherwise="slow"), *one_in(10, _WITH_WORKERS)],
)
def test_a_generator_out_of_the_way_is_put_back(data, workers, lab, kit):
    """Wherever a data set or a collate function keeps it, a cut in any epoch does not show."""

    def make():
        options = {"shuffle": True, **workers}
        if data is collated:
            options["collate_fn"] = functools.partial(noisy_batch, random.Random(5))
        val = DataLoader(data(kit), batch_size=4)
        return kit.Setup(kit.Net(), DataLoader(data(kit), batch_size=4, **options), val)

    cuts = {"batch-03", "batch-07", "epoch-01"}
    assert lab.check(make, cuts=lambda name: name in cuts) == len(cuts)


@pytest.mark.slow
def test_other_generators_inside_an_epoch_are_named(lab, kit):
    """Where a generator is elsewhere, the epoch's batches cannot be had again: both are named."""

    def make(augment):
        return kit.Setup(kit.Net(), DataLoader(kit.Samples(augment=augment), batch_size=4))

    lab.run(lambda: make(Noise()), "uncut", at_slots=True)
    with pytest.raises(ValueError, match="generators") as said:
        lab.run(lambda: make(Compose(Noise())), "other", lab.folder / "uncut" / "batch-02.ckpt")
    assert "was 1 (train loader.dataset.augment.rng)" in str(said.value)
    assert "is 1 (train loader.dataset.augment.parts[0].rng)" in str(said.value)


class KeepsLoaders(Callback):
    """Keeps the validation loaders of the epoch in which the fit starts."""

    def on_fit_start(self, trainer, module):
        self.loaders = trainer.val_dataloaders

    def on_train_end(self, trainer, module):
        self.loaders = None  # of another epoch after a resume


@pytest.mark.slow
def test_a_loader_that_was_replaced_leaves_the_generator_of_the_present_one_alone(lab, kit):
    """A callback still holds the first validation loader, and a resumed one the present loader."""

    class Reloads(kit.Net):
        def val_dataloader(self):
            generator = torch.Generator().manual_seed(self.trainer.current_epoch)
            return DataLoader(kit.Samples(), batch_size=4, shuffle=True, generator=generator)

    def make():
        return kit.Setup(
            Reloads(), DataLoader(kit.Samples(), batch_size=4), callbacks=[KeepsLoaders()],
            options={"reload_dataloaders_every_n_epochs": 1},
        )  # fmt: skip

    assert lab.check(make)
