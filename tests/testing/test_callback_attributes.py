"""`attribute_values` goes through what a callback holds, by a few rules."""

from __future__ import annotations

import datetime as dt
import random
import threading
from collections import deque
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import torch
from torch import nn

from trainer_hooks import Callback
from trainer_hooks.testing import TinyModule
from trainer_hooks.testing.callback_attributes import attribute_values
from trainer_hooks.testing.nested_diff import nested_differences


@dataclass
class Part:
    size: int


class Keeper:
    """Says itself what is to be kept."""

    def __init__(self) -> None:
        self.cache = object()

    def state_dict(self):
        return {"kept": 3}


def of(**attributes):
    """Return what a callback with some attributes holds."""
    callback = Callback()
    vars(callback).update(attributes)
    return attribute_values(callback, TinyModule())


def test_values_are_themselves_and_containers_are_gone_through() -> None:
    """Numbers, texts and dates stay; the items of lists, deques, sets and dicts are followed."""
    day = dt.date(2026, 1, 2)
    held = of(
        number=1, text="a", day=day, items=deque([1, (2, "b")]), names={"a"}, by={"k": [None]}
    )
    assert held == {
        "by": {"k": [None]}, "day": day, "items": [1, [2, "b"]], "names": {"a"}, "number": 1,
        "text": "a",
    }  # fmt: skip


def test_objects_are_their_attributes() -> None:
    """Parts of objects have their own places; in a container they are told with their class."""
    held = of(part=Part(2), space=SimpleNamespace(x=1), parts=[Part(3)])
    assert held["part.size"] == 2
    assert held["space.x"] == 1
    assert repr(held["part"]) == "an object of Part"
    assert held["parts"][0]["size"] == 3


def test_an_object_with_a_state_is_its_state() -> None:
    """What it keeps beside that is its own affair."""
    assert of(keeper=Keeper()) == {"keeper": {"kept": 3}}


def test_a_module_of_its_own_is_looked_into_and_the_trained_one_is_not() -> None:
    """Weights, buffers and plain attributes of a copy count; those that are trained do not."""
    callback, module = Callback(), TinyModule()
    own = nn.BatchNorm1d(2)
    own.seen = 4
    vars(callback).update(own=own, trained=module, layer=module.layer)
    held = attribute_values(callback, module)
    assert {name.partition(".")[0] for name in held} == {"own"}
    assert held["own.seen"] == 4
    assert set(held["own._parameters"]) == {"weight", "bias"}
    assert "running_mean" in held["own._buffers"]


def test_tensors_arrays_and_generators_are_copied() -> None:
    """What is held at a moment is not changed by what comes after it."""
    values = {
        "tensor": torch.zeros(2), "array": np.zeros(2), "torch": torch.Generator().manual_seed(1),
        "python": random.Random(1), "numpy": np.random.default_rng(1),
    }  # fmt: skip
    before = of(**values)
    assert nested_differences(before, of(**values)) == []
    values["tensor"] += 1
    values["array"] += 1
    torch.rand(1, generator=values["torch"])
    values["python"].random()
    values["numpy"].random()
    assert {place.split("'")[1] for place in nested_differences(before, of(**values))} == set(
        values
    )


def test_circles_and_code_are_borne() -> None:
    """A callback may hold itself, locks and functions."""
    callback = Callback()
    vars(callback).update(lock=threading.Lock(), act=print, me=callback, around=[callback])
    held = attribute_values(callback, TinyModule())
    assert repr(held["lock"]) == "an object of lock"
    assert held["around"] == []
    assert "me" not in held


def test_names_can_be_left_out() -> None:
    """What may differ is not gone through at all; a part of that name elsewhere is."""
    callback = Callback()
    vars(callback).update(size=1, part=Part(2))
    assert set(attribute_values(callback, TinyModule(), ["size"])) == {"part", "part.size"}
