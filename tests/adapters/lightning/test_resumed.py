"""Callbacks of Lightning that write weights or change optimizers are resumed exactly."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("pytorch_lightning") is None, reason="needs pytorch-lightning"
    ),
    pytest.mark.exhaustive,
]


@pytest.fixture(scope="module")
def results(results_of) -> dict:
    """What drawn plans came to, each with its differences."""
    return results_of(Path(__file__).with_name("resumed.py"), imports=("pytorch_lightning",))


def test_a_cut_run_is_the_uncut_one(results) -> None:
    """Weights, optimizers, rates, schedulers and losses are the same bits, up to three cuts on."""
    failed = {name: (one["plan"], one["found"]) for name, one in results.items() if one["found"]}
    assert failed == {}


def test_the_uncut_run_is_that_of_lightning(results) -> None:
    """The plans are what they are in Lightning's own Trainer: its weights at the end."""
    assert [name for name, one in results.items() if not one["as at home"]] == []
