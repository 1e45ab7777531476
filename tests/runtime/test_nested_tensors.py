"""Batches of any nesting are moved and searched."""

from __future__ import annotations

import collections
import dataclasses
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch

from trainer_hooks.data.batch_counts import count_samples_and_tokens
from trainer_hooks.data.resume_checks import fingerprint
from trainer_hooks.runtime.nested_tensors import bytes_of, first_tensor, map_tensors, move_to_device

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


@dataclasses.dataclass(slots=True)
class Slotted:
    x: Any
    name: str = "n"
    size: Any = dataclasses.field(init=False, default=None)

    def __post_init__(self):
        self.size = torch.tensor([len(self.x)])


def of_attrs(x, *, is_frozen):
    """Return a batch of a class of attrs, with slots."""
    attrs = pytest.importorskip("attrs")

    @attrs.define(frozen=is_frozen)
    class OfAttrs:
        x: Any
        name: str = attrs.field(default="n", kw_only=True)

    return OfAttrs(x)


class Encodings(collections.UserDict):
    """A mapping with more than items, as BatchEncoding of transformers."""

    def __init__(self, data, n_sequences=None):
        super().__init__(data)
        self.n_sequences = n_sequences


@pytest.mark.parametrize(
    "make", [Slotted, partial(of_attrs, is_frozen=False), partial(of_attrs, is_frozen=True)]
)
def test_objects_with_fields(make):
    """Of slotted dataclasses and attrs classes every field is moved, in an object of the class."""
    one = torch.ones(2, 3)
    batch = make([one])
    moved = move_to_device(batch, META)
    assert type(moved) is type(batch)
    assert moved.x[0].device == META
    assert moved.name == "n"
    assert batch.x[0] is one
    if make is Slotted:
        assert moved.size.device == META
    assert first_tensor(batch) is one
    assert next(iter(fingerprint(batch))) == "batch.x[0]"


def test_a_mapping_keeps_what_it_has_beside_its_items():
    """A defaultdict keeps its factory, and a user's mapping its attributes; the batch is as was."""
    batch = collections.defaultdict(list, x=torch.ones(1))
    assert move_to_device(batch, META).default_factory is list
    batch = Encodings({"x": torch.ones(2)}, n_sequences=2)
    moved = move_to_device(batch, META)
    assert (type(moved), moved.n_sequences, moved["x"].device) == (Encodings, 2, META)
    assert batch["x"].device.type == "cpu"
    assert list(fingerprint(batch)) == ["batch['x']"]


def test_a_batch_of_transformers():
    """A BatchEncoding stays one, is counted and split, and keeps its encodings."""
    encoding = pytest.importorskip("transformers").BatchEncoding
    batch = encoding({"input_ids": torch.ones(4, 3, dtype=torch.long)}, n_sequences=1)
    halves = map_tensors(batch, lambda tensor: tensor[:2])
    assert type(halves) is encoding
    assert (halves.n_sequences, len(halves["input_ids"])) == (1, 2)
    assert count_samples_and_tokens(batch) == (4, 12)
    assert move_to_device(batch, META)["input_ids"].device == META


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


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(3.0)[None, :][:, 1],
        torch.tensor(1.5).expand(1),
        torch.tensor(1.5).expand(3),
        torch.arange(12).reshape(3, 4).T,
        torch.arange(9, dtype=torch.uint8)[1:],
        torch.tensor([1 + 2j, 3j]).conj(),
        torch.ones(2, dtype=torch.bfloat16, requires_grad=True),
        torch.tensor(2.0),
        torch.zeros(0, 3),
    ],
    ids=["lone", "expanded lone", "expanded", "turned", "view", "conj", "grad", "0-dim", "empty"],
)
def test_bytes_are_those_of_the_elements_in_order(tensor):
    """However they lie in memory; so also one that torch calls contiguous and will not view."""
    in_order = torch.empty(tensor.shape, dtype=tensor.dtype)
    in_order.copy_(tensor.detach())
    assert bytes_of(tensor).tolist() == in_order.reshape(-1).view(torch.uint8).tolist()


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
