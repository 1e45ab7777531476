"""Training under torchrun whose ranks are killed and restarted."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

pytestmark = pytest.mark.exhaustive


@pytest.fixture
def kills(monkeypatch):
    """The script beside this file."""
    monkeypatch.syspath_prepend(Path(__file__).parent)
    return importlib.import_module("random_kills")


def are_reached(kills, whole):
    """Whether the training left after each kill is long enough for the next one."""
    trained = 0.0
    for rank, _, call in (kill.partition(":") for kill in kills):
        _, before, calls = whole.found[int(rank)]
        trained += max(0, int(call) - before) / (calls - before)
    return 0.2 < trained < 0.6


@pytest.mark.parametrize(("strategy", "ranks"), [("ddp", 2), ("ddp", 3), ("fsdp", 2)])
def test_a_killed_training_ends_as_if_it_had_not_been(kills, strategy, ranks, tmp_path):
    """Killed in a save, at random, or by a signal, it ends with bit-identical weights."""
    place = tmp_path / "whole"
    place.mkdir()
    whole = kills.train(place, strategy, [], ranks)
    drawn = (kills.random_kills(2, whole, seed) for seed in range(1000))
    asked = ["0:save", *next(two for two in drawn if are_reached(two, whole)), f"{ranks - 1}:term"]
    place = tmp_path / "killed"
    place.mkdir()
    killed = kills.train(place, strategy, asked, ranks)
    assert killed.output.count("exitcode: -9") == 3, killed.output
    assert "SIGTERM" in killed.output
    assert not kills.differences(whole, killed)
