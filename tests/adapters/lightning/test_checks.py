"""What callbacks of Lightning are handed in our Trainer."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CHECKS = Path(__file__).with_name("checks.py")
NAMES = [
    line.partition("(")[0].removeprefix("def ")
    for line in CHECKS.read_text(encoding="utf-8").splitlines()
    if line.startswith("def check_")
]

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("pytorch_lightning") is None, reason="needs pytorch-lightning"
    ),
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def results(results_of) -> dict:
    """What each check said, an empty text if it went well."""
    return results_of(CHECKS)


@pytest.mark.parametrize("name", NAMES)
def test_what_a_guest_is_handed(results, name: str) -> None:
    """Each check in `checks.py` holds, as its name says."""
    assert results[name] == "", results[name]
