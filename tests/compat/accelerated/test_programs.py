"""Programs of pytorch-accelerated, run by import lines alone."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

pytestmark = pytest.mark.slow  # twenty programs, several of which train for a while

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
try:
    from accelerated_programs import PROGRAMS
    from record import FILE, results
finally:
    sys.path.pop(0)

RECORDED = json.loads(FILE.read_text())["programs"]
HERE_PACKAGE = "trainer_hooks.compat.accelerated"
IS_INSTALLED = importlib.util.find_spec("pytorch_accelerated") is not None


def assert_same(found: Any, expected: Any, place: str) -> None:
    """Compare what two programs came to; numbers up to the rounding of single precision."""
    if isinstance(expected, dict):
        assert sorted(found) == sorted(expected), place
        for name, value in expected.items():
            assert_same(found[name], value, f"{place}.{name}")
    elif isinstance(expected, list):
        assert isinstance(found, list), place
        assert len(found) == len(expected), (place, found, expected)
        for number, (mine, theirs) in enumerate(zip(found, expected, strict=True)):
            assert_same(mine, theirs, f"{place}[{number}]")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-4, abs=2e-6), place
    else:
        assert found == expected, place


@pytest.fixture(autouse=True)
def _alone(monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def test_every_program_is_recorded() -> None:
    """`record.py` was run for all of them."""
    assert set(RECORDED) == set(PROGRAMS)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_comes_to_the_same(name, tmp_path) -> None:
    """Same calls in the same order, same history, same weights as in pytorch-accelerated."""
    assert_same(results(HERE_PACKAGE, name, tmp_path), RECORDED[name], name)


@pytest.mark.exhaustive
@pytest.mark.skipif(not IS_INSTALLED, reason="pytorch-accelerated is not installed")
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_recorded_is_what_it_does(name, tmp_path) -> None:
    """The recorded results are those of the package that is installed."""
    assert_same(results("pytorch_accelerated", name, tmp_path), RECORDED[name], name)
