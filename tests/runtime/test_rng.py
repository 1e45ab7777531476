"""Random state: seeded, captured, restored, isolated."""

from __future__ import annotations

import os
import random
import sys

import numpy as np
import pytest
import torch

from trainer_hooks import seed_everything
from trainer_hooks.errors import OptionError
from trainer_hooks.runtime import rng


@pytest.fixture(autouse=True)
def as_before(monkeypatch):
    """Leave the generators and the environment as they were."""
    monkeypatch.setenv("PL_GLOBAL_SEED", "0")
    monkeypatch.setenv("PL_SEED_WORKERS", "0")
    with rng.isolated():
        yield


def draw() -> list[float]:
    """Draw from every generator, also the second half of a pair of normal numbers."""
    return [
        random.random(),
        random.gauss(0, 1),
        float(np.random.rand()),
        float(np.random.normal()),
        float(torch.rand(())),
        float(torch.randn(())),
    ]


def test_one_seed_gives_one_sequence():
    """The same seed gives the same numbers of all three generators, another seed others."""
    seed_everything(3, verbose=False)
    first = draw()
    seed_everything(3, verbose=False)
    assert draw() == first
    seed_everything(4, verbose=False)
    assert all(a != b for a, b in zip(draw(), first, strict=True))


def test_the_seed_is_returned_and_left_in_the_environment():
    """The seed is handed to subprocesses under the names that other tools read."""
    assert seed_everything(11, workers=True, verbose=False) == 11
    assert os.environ["PL_GLOBAL_SEED"] == "11"
    assert os.environ["PL_SEED_WORKERS"] == "1"


def test_without_a_seed_the_environments_is_taken(monkeypatch):
    """None takes PL_GLOBAL_SEED, and 0 where that is not set."""
    monkeypatch.setenv("PL_GLOBAL_SEED", "42")
    assert seed_everything(verbose=False) == 42
    monkeypatch.delenv("PL_GLOBAL_SEED")
    assert seed_everything(verbose=False) == 0


@pytest.mark.parametrize("seed", [np.int64(7), "7", 7.0, torch.tensor(7), torch.tensor([7.0])])
def test_a_seed_may_be_what_stands_for_an_integer(seed):
    """A number of NumPy or torch, a text from a config: the seed is an int."""
    returned = seed_everything(seed, verbose=False)
    assert (returned, type(returned), os.environ["PL_GLOBAL_SEED"]) == (7, int, "7")


@pytest.mark.parametrize(
    "seed",
    [-1, 2**32, 1.5, True, "x", "7.5", "-3", float("nan"), float("inf"), [7],
     torch.tensor(7.5), torch.ones(2), np.float32(1.5)],
)  # fmt: skip
def test_a_seed_outside_the_rule_is_refused(seed):
    """Only integers that all three generators take are seeds."""
    with pytest.raises(OptionError, match=r"must be an integer from 0 to 4294967295"):
        seed_everything(seed, verbose=False)


def test_a_seed_in_the_environment_that_is_none_is_refused(monkeypatch):
    """A text in PL_GLOBAL_SEED is named as the cause."""
    monkeypatch.setenv("PL_GLOBAL_SEED", "many")
    with pytest.raises(OptionError, match="PL_GLOBAL_SEED='many' in the environment"):
        seed_everything(verbose=False)


def test_a_restored_state_gives_the_same_numbers():
    """capture and restore bring every generator back, in the middle of a pair too."""
    draw()
    state = rng.capture()
    first = draw()
    draw()
    rng.restore(state)
    assert draw() == first


def test_a_captured_state_is_a_copy():
    """Further draws do not change a captured state, so it can be restored again."""
    state = rng.capture()
    first = draw()
    rng.restore(state)
    draw()
    rng.restore(state)
    assert draw() == first


def test_a_captured_state_can_be_saved_safely(tmp_path):
    """The state comes back from a file without running code, and is worth the same."""
    random.gauss(0, 1)
    torch.save(rng.capture(), tmp_path / "state")
    first = draw()
    draw()
    rng.restore(torch.load(tmp_path / "state", weights_only=True))
    assert draw() == first


def test_what_runs_isolated_leaves_no_trace():
    """The generators go on after isolated() as if nothing had been drawn or seeded in it."""
    state = rng.capture()
    expected = draw()
    rng.restore(state)
    with pytest.raises(ZeroDivisionError), rng.isolated():
        draw()
        rng.reseed(5)
        raise ZeroDivisionError
    assert draw() == expected


def test_numpy_is_left_out_where_nobody_uses_it(monkeypatch):
    """Without NumPy in the process its state is neither saved nor looked for."""
    full = rng.capture()
    monkeypatch.delitem(sys.modules, "numpy")
    assert "numpy" in full
    assert "numpy" not in rng.capture()
    rng.restore(full)
    rng.reseed(1)
    assert "numpy" not in sys.modules


def test_a_state_without_numpy_leaves_numpy_alone():
    """A state saved in a process without NumPy can be restored in one with it."""
    state = rng.capture()
    del state["numpy"]
    expected = np.random.get_state()[1].tolist()
    rng.restore(state)
    assert np.random.get_state()[1].tolist() == expected


def test_reseeding_leaves_the_environment_alone():
    """reseed gives the numbers of seed_everything and changes no variable."""
    seed_everything(6, verbose=False)
    expected = draw()
    os.environ["PL_GLOBAL_SEED"] = "1"
    rng.reseed(6)
    assert draw() == expected
    assert os.environ["PL_GLOBAL_SEED"] == "1"
