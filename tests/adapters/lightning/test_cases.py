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
SEARCHED_HERE = {
    "BatchSizeFinder": "it looks at its loaders in `setup`, and checkpoints of the sizes differ",
    "LearningRateFinder": "the search is ours: it returns the rate that ours finds",
}
"""Those whose search runs loops of ours, so that what it finds is what our finders find."""

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("pytorch_lightning") is None, reason="needs pytorch-lightning"
    ),
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def results(results_of) -> dict:
    """What the callbacks did there and here."""
    return results_of(CASES)


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


@pytest.mark.parametrize("name", sorted(set(NAMES) - set(SEARCHED_HERE)))
@pytest.mark.parametrize("resumed", ["", " resumed"])
def test_it_does_what_it_does_at_home(results, name: str, resumed: str) -> None:
    """Calls in order, state, logged values, files and weights are the same, also resumed."""
    there, here = results[name + resumed]["there"], results[name + resumed]["here"]
    assert here == there


@pytest.mark.parametrize("name", sorted(SEARCHED_HERE))
def test_a_finder_searches_with_ours(results, name: str) -> None:
    """It runs, finds something, and the fit goes on with it."""
    here = results[name]["here"]
    assert "raised" not in here
    assert any(found for found in here["found"])
