"""Random generators are found wherever they hang, once each, under a name that says where."""

from __future__ import annotations

import asyncio
import functools
import logging
import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    Dataset,
    RandomSampler,
    Subset,
    random_split,
)

from trainer_hooks import Callback, CombinedLoader, Module, Trainer
from trainer_hooks.data import workers
from trainer_hooks.data.generators import (
    generator_states,
    generators_in,
    reseed,
    restore_generators,
)


class Noise:
    """A transform with a generator."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(1)

    def __call__(self, x):
        return x + self.rng.random()


class Slotted:
    __slots__ = ("_empty", "rng")

    def __init__(self) -> None:
        self.rng = random.Random(1)


class Compose:
    def __init__(self, *parts) -> None:
        self.parts = parts


class Data(Dataset):
    def __init__(self, transform) -> None:
        self.transform = transform

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index):
        return index


def closure():
    rng = random.Random(3)
    unset = SimpleNamespace()

    def draw(x):
        return x + rng.random() if unset else later

    if not unset:
        later = 1
    return draw


def with_default(x, rng=random.Random(4)):  # noqa: B008 - one for all calls is what is tested
    return rng


PLACES = {
    "Subset": (lambda: Subset(Data(Compose(Noise())), range(4)), ".dataset.transform.parts[0].rng"),
    "ConcatDataset": (
        lambda: ConcatDataset([Data(None), Subset(Data(Compose(Noise())), [1])]),
        ".datasets[1].dataset.transform.parts[0].rng",
    ),
    "random_split": (
        lambda: random_split(Data(Compose(None, Noise())), [2, 2])[0],
        ".dataset.transform.parts[1].rng",
    ),
    "slots": (lambda: Data(Slotted()), ".transform.rng"),
    "partial": (
        lambda: Data(functools.partial(print, Noise(), key=1)),
        ".transform.args[0].rng",
    ),
    "keyword of a partial": (
        lambda: Data(functools.partial(print, key=Noise())),
        ".transform.keywords['key'].rng",
    ),
    "closure": (lambda: Data(closure()), ".transform.rng"),
    "default": (lambda: Data(with_default), ".transform.__defaults__[0]"),
    "bound method": (lambda: Data(Noise().__call__), ".transform.__self__.rng"),
    "its own method": (lambda: Data(np.random.default_rng(2).normal), ".transform.__self__"),
    "dict": (lambda: Data({"a": [Noise()]}), ".transform['a'][0].rng"),
    "set": (lambda: Data({Noise()}), ".transform[0].rng"),
    "deep": (
        lambda: functools.reduce(lambda inner, _: [inner], range(40), Noise()),
        "[0]" * 40 + ".rng",
    ),
}


@pytest.mark.parametrize("name", PLACES)
def test_a_generator_is_found_wherever_it_hangs(name: str) -> None:
    """However deep, through attributes, slots, items, partials, bound methods and closures."""
    make, place = PLACES[name]
    assert list(generators_in({"data": make()})) == [f"data{place}"]


def test_generators_of_loaders_are_found_once_in_order() -> None:
    """The random generators of loaders and their samplers are listed, shared ones once."""
    one, two = torch.Generator(), torch.Generator()
    shuffled = DataLoader(range(4), shuffle=True, generator=one)
    sampled = DataLoader(range(4), sampler=RandomSampler(range(4), generator=two), generator=one)
    plain = DataLoader(range(4), shuffle=True)
    found = generators_in(
        {"train loader": CombinedLoader([shuffled, sampled]), "others": [plain, [1, 2]]}
    )
    assert found == {
        "train loader.loaders[0].generator": one,
        "train loader.loaders[1].sampler.generator": two,
    }


def test_modules_and_callbacks_are_owners_too() -> None:
    """Beside loaders, modules with their children, and callbacks; an object has its first name."""

    class OwnsGenerators(Module):
        def __init__(self) -> None:
            super().__init__()
            self.g = torch.Generator()
            self.layers = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.Dropout())
            self.layers[1].noise = Noise()

    class Mixup(Callback):
        def __init__(self, shared) -> None:
            self.rng = random.Random(1)
            self.shared = shared

    net = OwnsGenerators()
    found = generators_in({"module": net, "callback Mixup": Mixup(net.g)})
    assert set(found) == {"module.g", "module.layers.1.noise.rng", "callback Mixup.rng"}


def test_what_is_no_part_of_an_owner_is_left_alone() -> None:
    """Global generators, classes, modules of Python, loggers and the trainer are left out."""

    class Kind:
        rng = random.Random(1)

    trainer = Trainer(logger=False, enable_checkpointing=False, plugins=False)
    trainer.found_nowhere = random.Random(2)
    logger = logging.getLogger("here")
    logger.rng = random.Random(3)
    owner = SimpleNamespace(
        kind=Kind,
        a=torch.default_generator,
        b=random.random,
        c=np.random.rand,
        d=np.random.mtrand._rand,
        e=random.SystemRandom(),
        f=np,
        g=trainer,
        h=logger,
        i=np.ones(3, dtype=object),
    )
    assert generators_in({"owner": owner}) == {}


def test_long_containers_of_data_do_not_hide_what_comes_after() -> None:
    """Of ten thousand samples a few are looked at, so that the transform behind them is found."""
    data = SimpleNamespace(samples=[("path", number) for number in range(10_000)])
    data.by_name = {str(number): [number] for number in range(10_000)}
    data.transform = Compose(Compose(Noise()))
    assert list(generators_in({"data": data})) == ["data.transform.parts[0].parts[0].rng"]


def test_no_more_than_two_thousand_objects_are_looked_at() -> None:
    """The nearest come first, so that the search ends in time in whatever hangs on an owner."""
    tree: list = []
    for _ in range(3):
        tree = [list(tree) for _ in range(60)]
    assert generators_in({"near": [tree, Noise()], "other": Noise()}).keys() == {
        "near[1].rng",
        "other.rng",
    }


class Awkward:
    """Answers any attribute access, or fails."""

    def __getattr__(self, name):
        raise RuntimeError(name)


def test_objects_that_answer_oddly_do_no_harm() -> None:
    """Only values that an object holds are read: no properties, no `__getattr__`."""
    assert generators_in({"odd": [Awkward(), Noise()]}).keys() == {"odd[1].rng"}


def kinds() -> list:
    return [
        torch.Generator().manual_seed(1),
        random.Random(1),
        np.random.default_rng(1),
        np.random.RandomState(1),
    ]


def drawn(owner) -> list[float]:
    first, second, third, fourth = owner
    return [torch.rand((), generator=first).item(), second.random(), third.random(), fourth.rand()]


def test_an_object_of_c_whose_dict_cannot_be_read_is_passed_over() -> None:
    """As a future of asyncio, which has room for a dict of attributes and shows none."""
    loop = asyncio.new_event_loop()
    try:
        holder = SimpleNamespace(future=loop.create_future(), later=torch.Generator())
        assert list(generators_in({"owner": holder})) == ["owner.later"]
    finally:
        loop.close()


def test_states_come_back_by_name() -> None:
    """Each type draws the same again; a missing or different one is not changed."""
    owner = kinds()
    states = generator_states(generators_in({"all": owner}))
    first = drawn(owner)
    assert drawn(owner) != first
    restore_generators(generators_in({"all": owner}), {**states, "gone": states["all[1]"]})
    assert drawn(owner) == first
    owner[:] = owner[::-1]
    restore_generators(generators_in({"all": owner}), states)
    assert drawn(owner[::-1]) != first


def test_a_legacy_generator_takes_large_seeds() -> None:
    """NumPy's legacy generators take seeds below 2**32 alone: of a larger one, the lower bits."""
    found = [np.random.RandomState(), np.random.RandomState()]
    for generator, seed in zip(found, (2**32 + 5, 5), strict=True):
        [wrapped] = generators_in({"it": generator}).values()
        reseed(wrapped, seed)
    assert found[0].randint(1000, size=4).tolist() == found[1].randint(1000, size=4).tolist()


def test_what_workers_drew_is_forgotten_as_an_epoch_starts() -> None:
    """The draws of an earlier epoch say nothing of the next one's workers."""
    monitor = workers.WorkerMonitor(None)
    monitor._shared[workers._HAS_STARTED] = monitor._shared[workers._HAS_DRAWN] = 1
    assert monitor.has_drawn
    monitor.start_epoch(5)
    assert not monitor.has_drawn


def test_states_are_plain_data_and_tensors(tmp_path) -> None:
    """A checkpoint with them loads safely, and they come back from it."""
    owner = kinds()
    states = generator_states(generators_in({"all": owner}))
    torch.save(states, tmp_path / "states.pt")
    first = drawn(owner)
    loaded = torch.load(tmp_path / "states.pt", weights_only=True)
    restore_generators(generators_in({"all": owner}), loaded)
    assert drawn(owner) == first
