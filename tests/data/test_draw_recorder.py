"""Items that an iterable draws at random as it goes: their random states are recorded, if any."""

from __future__ import annotations

import pickle
import random
from itertools import islice

import numpy as np
import pytest
import torch

from trainer_hooks.data import draw_recorder
from trainer_hooks.data.draw_recorder import DrawRecorder
from trainer_hooks.runtime import rng


@pytest.fixture(autouse=True)
def as_before():
    """Leave the global random numbers as they were."""
    with rng.isolated():
        yield


@pytest.fixture
def readings(monkeypatch):
    """Count how often the random states are read."""
    counted = []
    read = rng.host_random_state
    monkeypatch.setattr(rng, "host_random_state", lambda *args: counted.append(1) or read(*args))
    return counted


def drawing(count, draws_from):
    """Draw from all libraries; an odd number of normal ones, of which NumPy keeps the next."""
    for number in range(count):
        if number < draws_from:
            yield number, None
        else:
            yield number, (torch.rand(()).item(), random.gauss(0.0, 1.0), np.random.normal())


def disturb():
    torch.rand(3), random.random(), np.random.normal(size=3)


def no_disturbance():
    pass


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 40])
@pytest.mark.parametrize("draws_from", [0, 10_000], ids=["drawing", "not drawing"])
def test_draws_are_those_of_a_plain_loop(count, draws_from) -> None:
    """Whoever draws in between: items and random numbers are as without a recorder."""

    def loop(items):
        found = []
        for item in items:
            found.append(item)
            disturb()
        return found, torch.rand(1).item(), random.random(), np.random.normal()

    rng.reseed(5)
    plain = loop(drawing(count, draws_from))
    rng.reseed(5)
    assert loop(DrawRecorder().items(lambda: drawing(count, draws_from))) == plain


def test_what_draws_nothing_is_left_alone(readings) -> None:
    """After the opening and four items no state is read; every item comes, in order."""
    items = DrawRecorder().items(lambda: drawing(1000, 10_000))
    assert [number for number, _ in items] == list(range(1000))
    assert len(readings) == 2 * 5


@pytest.mark.parametrize("between", [disturb, no_disturbance])
@pytest.mark.parametrize("most", [5, 1000], ids=["too many", "all recorded"])
@pytest.mark.parametrize("done", [0, 1, 2, 4, 5, 6, 9, 20])
def test_items_are_drawn_again_from_their_states(monkeypatch, between, most, done) -> None:
    """Opened again with other numbers it gives the same items, and then goes on from the present.

    Beyond the largest number of records it draws from a separate state, and goes on alike.
    """
    monkeypatch.setattr(draw_recorder, "_MAX_STATES", most)
    rng.reseed(5)
    recorder = DrawRecorder()
    items, first = recorder.items(lambda: drawing(20, 0)), []
    for item in islice(items, done):
        first.append(item)
        between()
    state, numbers = pickle.loads(pickle.dumps((recorder.state_dict(), rng.capture())))
    rest = []
    for item in items:
        rest.append(item)
        between()
    rng.reseed(6)
    again = DrawRecorder(state)
    items = again.items(lambda: drawing(20, 0))
    assert list(islice(items, done)) == first
    rng.restore(numbers)
    continued = []
    for item in items:
        continued.append(item)
        between()
    assert continued == rest
    assert again.state_dict() != {} or not done


def test_one_record_if_nothing_else_draws() -> None:
    """Each item goes on where the one before ended, so only the first state is recorded."""
    recorder = DrawRecorder()
    assert len(list(recorder.items(lambda: drawing(30, 0)))) == 30
    assert len(recorder.state_dict()["records"]) == 1


@pytest.mark.parametrize("done", [0, 1, 3, 5, 20])
@pytest.mark.parametrize("between", [disturb, no_disturbance])
def test_records_after_a_resume_are_those_of_the_uncut_run(between, done) -> None:
    """Opened again it adds the records that it would have added without the cut, and no other."""
    rng.reseed(5)
    recorder = DrawRecorder()
    items = recorder.items(lambda: drawing(30, 0))
    for _ in islice(items, done):
        between()
    state, numbers = pickle.loads(pickle.dumps((recorder.state_dict(), rng.capture())))
    for _ in items:
        between()
    again = DrawRecorder(state)
    items = again.items(lambda: drawing(30, 0))
    if not done:
        rng.restore(numbers)
    for number, _ in enumerate(items, 1):
        if number == done:
            rng.restore(numbers)
        elif number > done:
            between()
    again, recorder = again.state_dict(), recorder.state_dict()
    assert again.keys() == recorder.keys()
    assert again["steps"] == recorder["steps"]
    assert list(again["records"]) == list(recorder["records"])
