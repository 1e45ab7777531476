"""Handlers of Ignite do in our Trainer what they do on engines of their own."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CASES = Path(__file__).with_name("cases.py")
ENDED = [
    "terminate after a batch",
    "terminate at an epoch's end, skip_completed",
    "terminate before a batch",
    "terminate_epoch",
]
WHOLE = [
    "BasicTimeProfiler",
    "Checkpoint",
    "Checkpoint by score",
    "ConcatScheduler",
    "CosineAnnealingScheduler",
    "EMAHandler",
    "EarlyStopping",
    "EpochOutputStore",
    "FBResearchLogger",
    "Filtered events",
    "HandlersTimeProfiler",
    "LRScheduler",
    "LinearCyclicalScheduler",
    "ModelCheckpoint",
    "ParamGroupScheduler",
    "PiecewiseLinear",
    "ProgressBar",
    "Recording",
    "ReduceLROnPlateauScheduler",
    "StepStateScheduler",
    "TensorboardLogger",
    "TerminateOnNan",
    "TimeLimit",
    "Timer",
]
OTHER_THERE = "ReduceLROnPlateauScheduler, resumed"
"""A state of it that is loaded there goes on changing the optimizer that it was saved with."""

pytestmark = [
    pytest.mark.skipif(
        not all(map(importlib.util.find_spec, ("ignite", "tensorboard"))),
        reason="needs pytorch-ignite and tensorboard",
    ),
    pytest.mark.exhaustive,
]


@pytest.fixture(scope="module")
def results(results_of) -> dict:
    """What the handlers did there and here."""
    return results_of(CASES, imports=("ignite.engine", "ignite.handlers"))


def test_each_case_is_compared(results) -> None:
    """No case of the script is left out below."""
    names = [f"{name}, {how}" for name in WHOLE for how in ("plain", "resumed")]
    assert sorted(results) == sorted([*names, *(f"{name}, plain" for name in ENDED)])


@pytest.mark.parametrize(
    "name",
    [
        *(f"{name}, plain" for name in [*WHOLE, *ENDED]),
        *(f"{name}, resumed" for name in WHOLE if f"{name}, resumed" != OTHER_THERE),
    ],
)
def test_it_does_what_it_does_at_home(results, name: str) -> None:
    """Events in order with the engine's state, what is kept, files and weights are the same."""
    here, there = results[name]["here"], results[name]["there"]
    assert "raised" not in there
    assert here == there


@pytest.mark.parametrize("name", WHOLE)
def test_a_resumed_run_is_the_uncut_one(results, name: str) -> None:
    """What was cut after two of four epochs ends as what was not, with its last events."""
    resumed, uncut = (results[f"{name}, {how}"]["here"] for how in ("resumed", "plain"))
    for part in ("kept", "weights", "lr"):
        assert resumed[part] == uncut[part]
    last, whole = resumed["calls"][1], uncut["calls"][0]
    assert not last or last[-3:] == whole[-3:]
