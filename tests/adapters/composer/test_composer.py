"""Composer's callbacks in our Trainer, and ours in Composer's, with the real package."""

from __future__ import annotations

import importlib.metadata
import itertools
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


def _is_installed() -> bool:
    return any(importlib.metadata.distributions(name="mosaicml"))


CASES = [
    line.partition('"')[2].partition('"')[0]
    for line in (HERE / "cases.py").read_text("utf-8").partition("\nCASES")[2].splitlines()
    if line.startswith('    "')
]
TRIED_ELSEWHERE = {"Generate": "it takes Composer's HuggingFaceModel: see `isolated_models.py`"}
"""Built-in callbacks that have no case, and why."""

ONCE = {
    "Stopping", "StoppingEpoch", "Shortening", "ShorteningEpoch", "Lengthening", "MLPerfCallback",
    "CheckpointSaver-weights",
}  # fmt: skip
"""Cases of one run alone."""

pytestmark = [
    pytest.mark.skipif(
        not _is_installed(),
        reason="needs pip install --no-deps -r tests/adapters/composer/requirements.txt",
    ),
    pytest.mark.exhaustive,
]


@pytest.fixture(scope="module")
def results(results_of) -> dict:
    """What the callbacks did there and here."""
    return results_of(
        HERE / "cases.py", HERE / "stand_ins", imports=(str(HERE / "stand_ins"), "composer")
    )


def test_all_built_in_callbacks_are_tried() -> None:
    """There is a case for each class that `composer.callbacks` has, or a reason."""
    places = importlib.metadata.files("mosaicml") or []
    (place,) = [file for file in places if str(file) == "composer/callbacks/__init__.py"]
    listed = place.read_text().partition("__all__ = [")[2].split("'")[1::2]
    tried = {name.partition("-")[0] for name in CASES}
    assert set(listed) - tried == set(TRIED_ELSEWHERE)


@pytest.mark.parametrize("name", CASES)
def test_it_does_as_in_composer(results, name: str) -> None:
    """Events with their timestamps, logged values, attributes, files, weights are the same."""
    runs = [name] if name in ONCE else [name, f"{name} resumed"]
    for run in runs:
        found = results[run]
        assert "raised" not in found["there"]
        assert found["here"] == found["there"], run


@pytest.mark.parametrize("name", sorted({*CASES} - ONCE))
def test_it_resumes_inside_an_epoch_as_in_composer(results, name: str) -> None:
    """The same after a resume inside an epoch; its passed batches fire no events."""
    found = results[f"{name} resumed inside"]
    there, here = found["there"], found["here"]
    assert "raised" not in there
    calls = there["calls"]
    there["calls"] = [
        call
        for call, following in itertools.zip_longest(calls, calls[1:])
        if not (call == following and call[0] == "before_dataloader")
    ]
    assert here == there
