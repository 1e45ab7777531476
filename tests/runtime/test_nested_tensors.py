"""Batches of any nesting are moved and searched."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any, NamedTuple

import pytest
import torch

from trainer_hooks.runtime.nested_tensors import first_tensor, map_tensors, move_to_device

META = torch.device("meta")


class Pair(NamedTuple):
    x: Any
    y: Any


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: Any
    name: str = "n"
    made: int = dataclasses.field(default=0, init=False)


class Movable:
    def __init__(self, device="cpu") -> None:
        self.device = device

    def to(self, device):
        return Movable(device)


def test_every_nesting_is_moved_and_keeps_its_types():
    """Lists, tuples, dicts, named tuples and dataclasses are rebuilt around the moved tensors."""
    one = torch.ones(1)
    batch = [
        (one, 3),
        {"a": one, "b": "text"},
        Pair(one, [one]),
        Frozen({"deep": (one,)}),
        collections.OrderedDict(z=one, a=None),
    ]
    moved = move_to_device(batch, META)
    assert [type(item) for item in moved] == [type(item) for item in batch]
    assert moved[0][0].device == META
    assert moved[0][1] == 3
    assert (moved[1]["a"].device, moved[1]["b"]) == (META, "text")
    assert (moved[2].x.device, moved[2].y[0].device) == (META, META)
    assert (moved[3].x["deep"][0].device, moved[3].name) == (META, "n")
    assert list(moved[4]) == ["z", "a"]
    assert moved[4]["z"].device == META
    assert one.device.type == "cpu"


def test_what_can_move_itself_is_asked_to():
    """An object with to(device) is moved by it, wherever it is nested."""
    assert move_to_device({"graph": [Movable()]}, META)["graph"][0].device == META


@pytest.mark.parametrize("batch", [None, 3, "text", b"bytes", {1, 2}, object(), Pair, Frozen])
def test_what_holds_no_tensor_stays_as_it_is(batch):
    """Anything else, classes too, is returned itself."""
    assert move_to_device(batch, META) is batch


def test_tensors_can_be_changed():
    """map_tensors applies a function to tensors alone."""
    changed = map_tensors([torch.ones(1), Movable()], lambda tensor: tensor * 2)
    assert changed[0].item() == 2
    assert changed[1].device == "cpu"


def test_the_first_tensor_with_a_dimension_is_found():
    """Single numbers are passed over; the search goes depth first through every container."""
    found = torch.ones(2, 3)
    for batch in (
        found,
        [torch.tensor(1.0), {"a": "x", "b": (found,)}],
        Frozen([found]),
        Pair(None, found),
    ):
        assert first_tensor(batch) is found
    assert first_tensor([torch.tensor(1.0), "text", {}]) is None
