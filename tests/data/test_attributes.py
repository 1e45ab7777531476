"""Plain attributes of samplers, collate functions and data sets: found, saved and restored."""

from __future__ import annotations

import pickle
import threading
from collections import Counter, deque

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from trainer_hooks import CombinedLoader, DataModule
from trainer_hooks.data.attributes import PlainAttributes
from trainer_hooks.testing.nested_diff import nested_differences


class Numbers(Dataset):
    """Data with attributes of a test."""

    def __init__(self, **attributes) -> None:
        vars(self).update(attributes)

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        return index


class Order:
    """A batch sampler with attributes of a test."""

    def __init__(self, **attributes) -> None:
        vars(self).update(attributes)

    def __iter__(self):
        return iter([[0, 1], [2, 3]])


def loader_of(**attributes) -> DataLoader:
    return DataLoader(Numbers(), batch_sampler=Order(**attributes))


PAIRS = {
    "number": (1, 2.5),
    "text": ("easy", "hard"),
    "none": (None, 3),
    "flag": (False, True),
    "list": ([1, 2, 3], [3, 1, 2]),
    "grown list": ([1], [1, 2]),
    "nested list": ([[1, 2], [3]], [[2, 1], [3]]),
    "list of tensors": ([torch.zeros(2)], [torch.ones(2)]),
    "tuple": ((1, (2,)), (1, (3,))),
    "dict": ({"a": [1], 2: None}, {"a": [1], 2: 5}),
    "order of a dict": ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    "set": ({1, 2}, {2, 3}),
    "deque": (deque([1], 3), deque([1, 2], 3)),
    "tensor": (torch.arange(3), torch.tensor([2, 0, 1])),
    "shape": (torch.zeros(2), torch.zeros(3)),
    "array": (np.arange(3), np.array([2, 0, 1])),
    "not a number": (0.0, float("nan")),
    "kind": ([1], (1,)),
}


def copied(value):
    return pickle.loads(pickle.dumps(value))


def require_same(first, second) -> None:
    assert nested_differences(first, second) == []
    if isinstance(first, dict):
        assert list(first) == list(second)


@pytest.mark.parametrize("name", PAIRS)
def test_each_kind_is_found_and_restored(name) -> None:
    """In another process's loader; what has not changed is not saved."""
    before, after = PAIRS[name]
    first, second = loader_of(value=copied(before)), loader_of(value=copied(before))
    saving, loading = PlainAttributes(first), PlainAttributes(second)
    assert saving.changed() == {}
    first.batch_sampler.value = copied(after)
    state = copied(saving.changed())
    assert list(state) == ["[0].batch_sampler"]
    loading.restore(state)
    require_same(second.batch_sampler.value, first.batch_sampler.value)
    loading.restore({})  # back to the value at construction
    assert loading.changed() == {}
    require_same(second.batch_sampler.value, before)


@pytest.mark.parametrize(
    "name", ["list", "dict", "set", "deque", "tensor", "array", "grown list"]
)  # fmt: skip
def test_a_container_stays_the_same_object(name) -> None:
    """Others may hold it, as an iterator that is open."""
    before, after = PAIRS[name]
    loader = loader_of(value=copied(before))
    held, attributes = loader.batch_sampler.value, PlainAttributes(loader)
    attributes.restore({"[0].batch_sampler": {"value": after}})
    assert loader.batch_sampler.value is held
    require_same(held, after)


def test_a_state_does_not_change_with_the_object() -> None:
    """A save in another thread writes it later."""
    loader = loader_of(order=[1, 2])
    attributes = PlainAttributes(loader)
    loader.batch_sampler.order.append(3)
    state = attributes.changed()
    loader.batch_sampler.order.append(4)
    assert state == {"[0].batch_sampler": {"order": [1, 2, 3]}}


def test_objects_inside_are_found() -> None:
    """Of a data set, a collate function, a sampler in a batch sampler, and of several loaders."""
    collate = Order(seen=0)
    first = DataLoader(Numbers(calls=0), batch_sampler=Order(inner=Order(place=0)))
    second = DataLoader(Numbers(), collate_fn=collate.__iter__)
    attributes = PlainAttributes(CombinedLoader([first, second]))
    first.dataset.calls = first.batch_sampler.inner.place = collate.seen = 1
    assert set(attributes.changed()) == {
        "[0].dataset", "[0].batch_sampler.inner", "[1].collate_fn.__self__",
    }  # fmt: skip


def test_what_is_not_plain_is_left_alone() -> None:
    """Objects, large data of a data set, parts that work in threads, data modules and modules."""

    class OfRun(DataModule):
        pass

    module, data = OfRun(), Numbers(large=torch.zeros(9000), long=[0] * 9000, count=0)
    data.module, data.transform, data.counter = module, torch.nn.ReLU(), Counter()
    threaded = Order(lock=threading.Lock(), count=0)
    loader = DataLoader(data, batch_sampler=Order(part=threaded))
    attributes = PlainAttributes(loader)
    data.large, data.long, data.counter["a"] = torch.ones(9000), [1] * 9000, 1
    module.count = data.transform.count = threaded.count = data.count = 1
    assert attributes.changed() == {"[0].dataset": {"count": 1}}
    attributes.restore({})
    assert (data.count, threaded.count, data.counter["a"], data.long[0]) == (0, 1, 1, 1)


def test_an_ordinary_loader_has_none() -> None:
    """So a save of it costs nothing more."""
    data = torch.utils.data.TensorDataset(torch.zeros(4))
    assert not PlainAttributes(DataLoader(data, batch_size=2, shuffle=True))
    assert not PlainAttributes([torch.zeros(1)])
