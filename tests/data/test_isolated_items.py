"""Items that an iterable draws at random as it goes: watched, and left alone if it does not."""

from __future__ import annotations

import random

import pytest
import torch

from trainer_hooks.data.stream import isolated_items
from trainer_hooks.runtime import rng


@pytest.fixture
def exchanges(monkeypatch):
    """Count how often the random numbers are exchanged."""
    counted = []
    enter = rng.SeparateRandomState.__enter__
    monkeypatch.setattr(
        rng.SeparateRandomState, "__enter__", lambda own: counted.append(1) or enter(own)
    )
    return counted


def drawing(count, draws_from):
    for number in range(count):
        yield (number, torch.rand(()).item() if number >= draws_from else None)


def given(count, draws_from, disturb=lambda: None):
    """Return the items, drawn between disturbances of the global random numbers."""
    torch.manual_seed(5)
    items = []
    for item in isolated_items(lambda: drawing(count, draws_from)):
        items.append(item)
        disturb()
    return items


def test_what_draws_nothing_is_left_alone(exchanges) -> None:
    """After the opening and four items nothing is exchanged; every item comes, in order."""
    items = given(1000, 10_000, lambda: torch.rand(1))
    assert [number for number, _ in items] == list(range(1000))
    assert len(exchanges) == 5


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 40])
@pytest.mark.parametrize("draws_from", [0, 10_000], ids=["drawing", "not drawing"])
def test_any_number_of_items_comes(count: int, draws_from) -> None:
    """The end is found among the items that are watched, right after them, and later."""
    assert len(given(count, draws_from)) == count


def test_what_draws_gives_the_same_whatever_else_draws(exchanges) -> None:
    """Numbers drawn in between by others change nothing, and are not changed."""
    quiet = given(30, 0)
    assert len(exchanges) == 1 + 31  # the opening, the items, and the end
    random.seed(1)
    loud = given(30, 0, lambda: (torch.rand(3), random.random()))
    after = torch.rand(1)
    assert loud == quiet
    torch.manual_seed(5)
    rng.draw_seed()
    for _ in range(30):
        torch.rand(3)
    assert torch.equal(after, torch.rand(1))


def test_nothing_is_drawn_before_the_first_item_is_asked_for() -> None:
    """The seed is drawn, and the iterable opened, with the first item."""
    opened = []
    before = rng.host_random_state()
    items = isolated_items(lambda: opened.append(1) or iter([7]))
    assert not rng.has_drawn_since(before)
    assert opened == []
    assert list(items) == [7]
    assert rng.has_drawn_since(before)
