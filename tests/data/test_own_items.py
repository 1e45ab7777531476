"""Items that an iterable draws at random as it goes: watched, and left alone if it does not."""

from __future__ import annotations

import random

import pytest
import torch

from trainer_hooks.data.own_items import OwnItems
from trainer_hooks.runtime.rng import OwnNumbers


class Numbers(OwnNumbers):
    """Counts how often the random numbers are exchanged."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.exchanged = 0

    def __enter__(self) -> None:
        self.exchanged += 1
        super().__enter__()


def drawing(count, draws_from):
    for number in range(count):
        yield (number, torch.rand(()).item() if number >= draws_from else None)


def given(count, draws_from, disturb):
    """Return the items, drawn between disturbances of the global random numbers, and the parts."""
    numbers = Numbers(5)
    own = OwnItems(lambda: drawing(count, draws_from), numbers)
    items = []
    for item in own:
        items.append(item)
        disturb()
    return items, numbers, own


def test_what_draws_nothing_is_left_alone() -> None:
    """The exchanges grow with the logarithm of the items; every item comes, in order."""
    items, numbers, own = given(1000, 10_000, lambda: torch.rand(1))
    assert [number for number, _ in items] == list(range(1000))
    assert numbers.exchanged <= 1 + 4 + 9
    assert own.print_of(1000)[0] <= 1000
    assert not own.has_slipped


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 8, 9, 10, 17, 18, 40])
def test_any_number_of_items_comes(count: int) -> None:
    """The end is found in a watched stretch, in one left alone, and between two."""
    items, _, _ = given(count, 10_000, lambda: None)
    assert len(items) == count


def test_what_draws_gives_the_same_whatever_else_draws() -> None:
    """Numbers drawn in between by others change nothing, and are not changed."""
    quiet, numbers, own = given(30, 0, lambda: None)
    assert numbers.exchanged == 1 + 31  # the opening, the items, and the end
    torch.manual_seed(1)
    random.seed(1)
    loud, _, _ = given(30, 0, lambda: (torch.rand(3), random.random()))
    after = torch.rand(1)
    assert loud == quiet
    torch.manual_seed(1)
    for _ in range(30):
        torch.rand(3)
    assert torch.equal(after, torch.rand(1))
    assert not own.has_slipped
    assert own.print_of(30)[0] == 30


def test_what_begins_to_draw_late_is_told() -> None:
    """Items that were left alone may have been drawn at random by then."""
    _, _, own = given(40, 6, lambda: None)
    assert own.has_slipped
