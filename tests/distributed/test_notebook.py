"""Where no command can be run again, as in a notebook, the processes are forked for each run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.exhaustive


@pytest.fixture(scope="module")
def cells(ran, tmp_path_factory):
    """The observations and the output of `notebook.py`."""
    folder = tmp_path_factory.mktemp("notebook")
    program = Path(__file__).with_name("notebook.py").read_text()
    code, output, left = ran("-", str(folder), program=program)
    assert code == 0, output
    assert left == [], output
    return json.loads((folder / "found.json").read_text()), output


def test_what_was_trained_comes_back(cells):
    """Weights, counters, metrics, history and the callbacks' states are in the caller's objects."""
    found, output = cells
    assert found["place"] == [2, 0, "cpu", True]
    assert found["counters"] == [2, 16, "finished"]
    assert found["metrics"].keys() >= {"loss", "loss_epoch", "val_loss"}
    assert len(found["history"]) == 2
    assert found["best"]
    assert "2 processes (gloo, CPU), forked from this notebook because devices=2" in output


def test_a_later_fit_goes_on(cells):
    """Two fits of two epochs, also from a checkpoint saved between, are one of four."""
    found, _ = cells
    assert found["steps"] == 32
    assert found["weights"] == found["whole"] == found["resumed"]


def test_evaluations_return_what_rank_zero_found(cells):
    """Metrics are of all processes, predictions of the first; all write to one folder."""
    found, _ = cells
    assert found["validated"] == pytest.approx(found["metrics"]["val_loss"], rel=0.5)
    assert found["predicted"] == 8
    assert found["logs"] == 1


def test_an_error_of_a_process_is_the_callers(cells):
    """The notebook survives an error, a kill and Ctrl-C, after which a fit goes on where it was."""
    found, _ = cells
    kind, text = found["fail"]
    assert (kind, "in rank 1 of 2" in text) == ("ValueError", True)
    assert found["kill"] == [
        "UsageError",
        "rank 1 of 2 was killed by SIGKILL, perhaps for want of memory.",
    ]
    assert found["interrupt"][0] == "KeyboardInterrupt"
    assert [found[f"{name} moved"] for name in ("fail", "kill", "interrupt")] == [
        False, False, True,
    ]  # fmt: skip
    assert found["fail at"] == found["kill at"] == [0, 0]
    assert found["after interrupt"] == [1, 8]
