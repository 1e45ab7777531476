"""A batch in parts of the same structure."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass

import pytest
import torch

from trainer_hooks.data.batch_splitting import samples_in, split_batch
from trainer_hooks.errors import DataError

Pair = namedtuple("Pair", "x y")


@dataclass
class Data:
    x: torch.Tensor
    weight: torch.Tensor


def numbers(count=5):
    return torch.arange(count * 2.0).reshape(count, 2)


def joined(parts, get):
    return torch.cat([get(part) for part in parts])


@pytest.mark.parametrize(
    ("batch", "get"),
    [
        (numbers(), lambda b: b),
        ((numbers(), numbers() + 1), lambda b: b[1]),
        ([numbers(), numbers() + 1], lambda b: b[1]),
        (Pair(numbers(), numbers() + 1), lambda b: b.y),
        ({"x": numbers(), "deep": {"y": [numbers() + 1]}}, lambda b: b["deep"]["y"][0]),
        (Data(numbers(), numbers() + 1), lambda b: b.weight),
    ],
    ids=["tensor", "tuple", "list", "namedtuple", "nested dict", "dataclass"],
)
def test_parts_have_the_structure_of_the_whole(batch, get) -> None:
    """Every tensor is cut along its first dimension, whatever it is nested in."""
    parts = split_batch(batch, 2)
    assert [samples_in(part) for part in parts] == [2, 2, 1]
    assert all(type(part) is type(batch) for part in parts)
    assert torch.equal(joined(parts, get), get(batch))


def test_a_small_batch_is_left_whole() -> None:
    """What is no larger than a part is not touched, not even copied."""
    batch = {"x": numbers()}
    assert split_batch(batch, 5)[0] is batch
    assert split_batch(batch, 500)[0] is batch


def test_texts_of_the_samples_are_cut_and_what_is_of_all_is_not() -> None:
    """A list with one object for each sample is cut; numbers and single values go everywhere."""
    batch = {"x": numbers(), "texts": list("abcde"), "scale": torch.tensor(2.0), "name": "train"}
    parts = split_batch(batch, 3)
    assert [part["texts"] for part in parts] == [["a", "b", "c"], ["d", "e"]]
    assert [part["scale"].item() for part in parts] == [2.0, 2.0]
    assert [part["name"] for part in parts] == ["train", "train"]


def test_a_tensor_of_another_length_is_an_error() -> None:
    """It is not guessed how a tensor without one entry for each sample is to be cut."""
    with pytest.raises(DataError, match=r"shape \(3,\) beside one of 5 samples.*split_batch"):
        split_batch((numbers(), torch.zeros(3)), 2)


def test_a_batch_without_tensors_is_an_error() -> None:
    """Without a number of samples, the message names the method to override."""
    with pytest.raises(DataError, match=r"type list.*no tensor.*split_batch"):
        split_batch(["a", "b"], 1)
