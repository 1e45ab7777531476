"""Nested values are compared bit for bit."""

from __future__ import annotations

import math

import pytest
import torch

from trainer_hooks.testing.nested_diff import nested_differences

LARGEST = torch.finfo(torch.float32).max


@pytest.mark.parametrize("value", [1.0, 0.0, -0.5, LARGEST, -LARGEST, math.inf, -math.inf])
def test_a_number_that_is_not_finite_equals_itself_alone(value) -> None:
    """NaN equals NaN, infinity is not the largest number, and NaN is not zero."""
    for other in (math.nan, math.inf, -math.inf):
        differences = nested_differences(torch.tensor([1.0, value]), torch.tensor([1.0, other]))
        assert (differences == []) == (value == other)
    assert nested_differences(torch.tensor([math.nan]), torch.tensor([math.nan])) == []


def test_long_tensors_of_bools_that_print_alike() -> None:
    """Torch leaves out the middle of a long tensor, and does not subtract bools."""
    first = torch.zeros(5000, dtype=torch.bool)
    second = first.clone()
    second[2500] = True
    assert len(nested_differences(first, second)) == 1
