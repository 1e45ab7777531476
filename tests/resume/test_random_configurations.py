"""Configurations drawn at random are resumed exactly, wherever they are cut."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest


@pytest.fixture
def fuzzer(monkeypatch):
    """The module that draws, runs and compares; it stands beside this file, and is a command."""
    monkeypatch.syspath_prepend(Path(__file__).parent)
    return importlib.import_module("random_configurations")


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 40, 5))
def test_a_run_that_is_cut_and_resumed_is_the_uncut_one(fuzzer, first, capfd) -> None:
    """Weights, states, metrics, random numbers, and every later hook call are the same bits.

    A few are drawn here; `random_configurations.py --seeds 0:1000` draws as many as one likes.
    """
    assert fuzzer.failures(range(first, first + 5)) == []


@pytest.mark.parametrize(
    ("seed", "changed"),
    [
        (153, {"samples": 15, "val_check_interval": "2ba or 1ep"}),
        (335, {"second_cut": True, "asks": True, "ends": "7 steps"}),
        (
            2589,
            {
                "samples": 15,
                "val": "two",
                "evaluators": "3ba",
                "metric_objects": True,
                "val_check_interval": 2,
            },
        ),
        (3389, {"cut": "signal in validation", "batch_norm": True, "average": "ema"}),
        (5336, {"evaluators": "1ep", "asks": True, "val_check_interval": "2ba or 1ep"}),
    ],
    ids=[
        "due once more",
        "request of the last slot",
        "metric object of two loaders",
        "buffers of exchanged weights",
        "due, and nobody goes by it",
    ],
)
def test_what_was_found_once_does_not_come_back(fuzzer, tmp_path, seed, changed) -> None:
    """The smallest configurations that once differed are the same run now."""
    runs = importlib.import_module("random_runs")
    options = {name: values[0] for name, values in fuzzer.SPACE.items()} | changed
    assert runs.examine(options, tmp_path, seed).status == "same"


def test_a_failure_is_made_as_small_as_it_can_be(fuzzer) -> None:
    """Of a configuration only what the failure needs stays, in its simplest form."""
    drawn = fuzzer.draw(12)
    options = {**drawn, "data": "map", "order": "own: by epoch", "dropout": True, "workers": 2}

    def fails(candidate) -> bool:
        return candidate["order"].startswith("own") and candidate["workers"] > 0

    assert fuzzer.changed(fuzzer.shrink(options, fails)) == {"order": "own: at once", "workers": 1}


def test_a_seed_is_one_configuration(fuzzer) -> None:
    """A seed always draws the same, others draw others, and nothing known to go wrong."""
    drawn = [fuzzer.draw(seed) for seed in range(50)]
    assert drawn == [fuzzer.draw(seed) for seed in range(50)]
    assert len({str(options) for options in drawn}) == 50
    assert not any(options["cut"] == "hook" for options in drawn)


def test_a_difference_is_found_and_told(fuzzer, monkeypatch, tmp_path) -> None:
    """What the fuzzer is there for: a state that a checkpoint leaves out fails, with its seed."""
    runs = importlib.import_module("random_runs")
    modules = importlib.import_module("random_modules")
    monkeypatch.setattr(modules.Counter, "state_dict", lambda self: {"count": 0, "noise": 0.0})
    monkeypatch.setattr(modules.Counter, "load_state_dict", lambda self, state: None)
    options = {name: values[0] for name, values in fuzzer.SPACE.items()}
    options["counts"] = ("on_train_batch_end",)
    result = runs.examine(options, tmp_path, 3)
    assert result.status == "same"
    monkeypatch.setattr(modules.Counter, "state_dict", lambda self: {"count": self.count})
    result = runs.examine(options, tmp_path, 3)
    assert result.status == "differs"
    told = fuzzer.told(3, result, options)
    assert told.startswith("seed 3: {'counts': ('on_train_batch_end',)}\n    cut by error at ")
    assert "Counter" in told
