"""Training under torchrun whose ranks are killed and restarted."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


@pytest.fixture
def kills(monkeypatch):
    """The script beside this file."""
    monkeypatch.syspath_prepend(Path(__file__).parent)
    return importlib.import_module("random_kills")


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_a_killed_training_ends_as_if_it_had_not_been(kills, strategy, tmp_path):
    """Killed in a save, at random, or by a signal, it ends with bit-identical weights."""
    place = tmp_path / "whole"
    place.mkdir()
    whole = kills.train(place, strategy, [])
    asked = ["0:save", *kills.random_kills(2, whole, seed=1), "1:term"]
    place = tmp_path / "killed"
    place.mkdir()
    killed = kills.train(place, strategy, asked)
    assert killed.output.count("exitcode: -9") == 3, killed.output
    assert "SIGTERM" in killed.output
    assert not kills.differences(whole, killed)
