"""Comparing two trainings must find any bit that differs."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from trainer_hooks.cli.demo.comparison import compare_tensors, tensors_in


def weights() -> dict[str, Tensor]:
    """Return tensors as a state_dict has them: of several types, one of them 0-dim."""
    return {
        "weight": torch.arange(6.0).reshape(2, 3),
        "bias": torch.tensor([1.0, math.nan]),
        "batches": torch.tensor(7),
    }


def test_the_same_bits_are_equal() -> None:
    """Copies are equal, NaN included, and the numbers in them are counted."""
    found = compare_tensors(weights(), weights())
    assert found.is_equal
    assert str(found) == "equal, bit for bit (3 tensors, 9 numbers)"


def test_layout_in_memory_does_not_matter() -> None:
    """A transposed view is equal to its contiguous copy."""
    view = torch.arange(6.0).reshape(2, 3).t()
    assert compare_tensors({"w": view}, {"w": view.contiguous()}).is_equal


@pytest.mark.parametrize(
    ("name", "other", "words"),
    [
        ("weight", torch.nextafter(torch.arange(6.0), torch.tensor(9.0)).reshape(2, 3), "by up to"),
        ("weight", torch.arange(6.0), "(2, 3)"),
        ("weight", torch.arange(6.0).reshape(2, 3).double(), "torch.float64"),
        ("batches", torch.tensor(8), "by up to 1"),
    ],
    ids=["the least difference", "shape", "type", "a counter"],
)
def test_what_differs_is_named(name: str, other: Tensor, words: str) -> None:
    """One tensor that differs in value, shape or type makes the sets unequal, and is named."""
    found = compare_tensors(weights(), {**weights(), name: other})
    assert not found.is_equal
    assert list(found.differing) == [name]
    assert words in str(found)
    assert str(found).startswith(f"NOT EQUAL: 1 of 3 tensors differ; the first is {name}")


def test_signs_of_zero_are_bits_too() -> None:
    """0.0 and -0.0 are equal as numbers, but not bit for bit."""
    assert not compare_tensors({"w": torch.tensor(0.0)}, {"w": torch.tensor(-0.0)}).is_equal


def test_a_missing_tensor_is_a_difference() -> None:
    """A name that only one side has makes the sets unequal, whichever side it is."""
    less = weights()
    del less["bias"]
    for found in (compare_tensors(weights(), less), compare_tensors(less, weights())):
        assert not found.is_equal
        assert found.differing == {"bias": "only one of the two has it"}


def test_nothing_is_equal_to_nothing() -> None:
    """Two empty sets are not called equal: there was nothing to compare."""
    found = compare_tensors({}, {})
    assert not found.is_equal
    assert "nothing to compare" in str(found)


def test_tensors_are_found_wherever_they_are() -> None:
    """Tensors and numbers of nested containers are found by path; strings and None are left out."""
    tree = {"state": {0: {"step": 3, "avg": torch.ones(2)}}, "lr": [0.5, (True, None, "adam")]}
    found = tensors_in(tree)
    assert list(found) == ["state.0.step", "state.0.avg", "lr.0", "lr.1.0"]
    assert found["state.0.step"].item() == 3
    assert found["lr.0"].item() == 0.5
