"""Guests of Lightning do in two processes what they do in two of its own."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

TOGETHER = Path(__file__).with_name("together.py")
TEXT = TOGETHER.read_text(encoding="utf-8")
NAMES = [
    line.partition("(")[0].removeprefix("def ")
    for line in TEXT.splitlines()
    if line.startswith("def case_")
]
BUILT_IN = TEXT.partition("\nBUILT_IN = (")[2].partition(")")[0].split('"')[1::2]

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("pytorch_lightning") is None, reason="needs pytorch-lightning"
    ),
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def results(results_of_two) -> list[dict]:
    """What each process saw there and here."""
    return results_of_two(TOGETHER)


@pytest.mark.parametrize("name", sorted({*NAMES} - {"case_early_stopping_by_one"}))
def test_processes_do_what_they_do_at_home(results, name: str) -> None:
    """What callbacks ask and do, log, write and stop is the same in both, in each rank."""
    for rank in range(2):
        there, here = results[rank][name]["there"], results[rank][name]["here"]
        assert "raised" not in there, there
        assert here == there


def test_what_is_not_synced_is_decided_by_rank_zero(results) -> None:
    """Where ranks log different values, rank 0's hold in all: the other one's stops nothing."""
    for rank in range(2):
        epochs, *_ = results[rank]["case_early_stopping_by_one"]["here"]["found"]
        assert epochs == 6


@pytest.mark.parametrize("name", BUILT_IN)
@pytest.mark.parametrize("resumed", ["", " resumed"])
def test_built_in_callbacks_do_what_they_do_at_home(results, name: str, resumed: str) -> None:
    """Calls, state, values, files and weights are the same in each rank, also resumed."""
    for rank in range(2):
        there, here = results[rank][name + resumed]["there"], results[rank][name + resumed]["here"]
        assert "raised" not in there, there
        if name == "StochasticWeightAveraging-norm":  # its step without gradients counts there
            there, here = ({**one, "calls": None, "files": None} for one in (there, here))
        assert here == there
