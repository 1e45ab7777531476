"""Every built-in callback of Lightning does in our Trainer what it does in its own."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CASES = Path(__file__).with_name("cases.py")
NAMES = [
    line.strip().partition('"')[2].partition('"')[0]
    for line in CASES.read_text(encoding="utf-8").partition("\nCASES")[2].splitlines()
    if line.startswith('    "') and line.endswith(("(", ",", "{"))
]
ANEW = tuple(name for name in NAMES if name.startswith(("BatchSizeFinder", "LearningRateFinder")))
"""Those whose search sets back the counters of a resume there, which then trains all epochs."""
OTHERWISE = {
    "BatchSizeFinder": ("calls", "rows"),
    "StochasticWeightAveraging-norm": ("calls", "files"),
}
"""What differs: `setup` looks at loaders, and searching sets back the epoch and step of later
evaluations; the epoch that measures a BatchNorm's inputs ends with a step, without gradients."""

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("pytorch_lightning") is None, reason="needs pytorch-lightning"
    ),
    pytest.mark.exhaustive,
]


@pytest.fixture(scope="module")
def results(results_of) -> dict:
    """What the callbacks did there and here."""
    return results_of(CASES, imports=("pytorch_lightning",))


def test_all_built_in_callbacks_are_tried() -> None:
    """There is a case for each class that `pytorch_lightning.callbacks` has."""
    spec = importlib.util.find_spec("pytorch_lightning")
    assert spec is not None
    assert spec.origin is not None
    text = Path(spec.origin).with_name("callbacks").joinpath("__init__.py").read_text("utf-8")
    listed = {
        part.split('"')[1] for part in text.partition("__all__")[2].splitlines() if '"' in part
    }
    assert listed - {name.partition("-")[0] for name in NAMES} <= {"Checkpoint"}


@pytest.mark.parametrize(
    ("name", "resumed"),
    [
        (name, resumed)
        for name in sorted(NAMES)
        for resumed in ("", " resumed")
        if not resumed or name not in ANEW
    ],
)
def test_it_does_what_it_does_at_home(results, name: str, resumed: str) -> None:
    """Calls in order, state, logged values, files and weights are the same, also resumed."""
    there, here = results[name + resumed]["there"], results[name + resumed]["here"]
    for part in OTHERWISE.get(name, ()):
        assert here.pop(part)
        assert there.pop(part)
    if (name, resumed) == ("SpikeDetection", " resumed"):  # it cannot load its own state
        kind, message = there.pop("raised").split(": ", 1)
        raised = here.pop("raised")
        assert raised.startswith("UnfitPartError: ")
        assert f"({kind}: {message}" in raised
    assert here == there
    assert "raised" not in here


@pytest.mark.parametrize("name", ANEW)
def test_a_resumed_finder_goes_on_from_the_epoch(results, name: str) -> None:
    """It searches again, and then the fit goes on where it was."""
    here = results[f"{name} resumed"]["here"]
    assert "raised" not in here
    assert any(found for found in here["found"])
    assert sum('"epoch": 0.0' in row and "loss_epoch" in row for row in here["rows"]) == 1
