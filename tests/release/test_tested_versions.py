"""The versions that are tested stand in one place, and all that tells of them agrees with it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from trainer_hooks._version import OLDEST_TORCH, TESTED

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
INSTALL = (ROOT / "docs/install.md").read_text(encoding="utf-8")


def rows() -> list[list[str]]:
    """Return the cells of the table of `.ci/matrix` in docs/install.md."""
    table = INSTALL.partition("| Python | torch | fast tests |")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]


def test_the_oldest_torch_is_the_bound() -> None:
    """No older one is installed, and it is among those that are tested."""
    [torch] = [r for r in map(Requirement, PROJECT["dependencies"]) if r.name == "torch"]
    assert str(torch.specifier) == f">={OLDEST_TORCH}"
    assert min(Version(version) for _, version in TESTED) == Version(OLDEST_TORCH)


def test_the_classifiers_are_the_pythons() -> None:
    """Each one that is tested, and no other."""
    pythons = sorted({python for python, _ in TESTED}, key=Version)
    prefix = "Programming Language :: Python :: 3."
    assert [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if c.startswith(prefix)] == pythons
    assert PROJECT["requires-python"] == f">={pythons[0]}"


def test_the_table_has_each_pair() -> None:
    """In the order of the pairs, and with a date."""
    shown = [(".".join(row[0].split(".")[:2]), row[1].partition("+")[0]) for row in rows()]
    assert shown == list(TESTED)
    assert re.search(r"`python \.ci/matrix`, \d+ \w+ \d{4}, Linux", INSTALL)


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_each_pair_has_passed(row) -> None:
    """A pair is called tested once its row has no failure."""
    assert row[2].startswith("0 failed, ")
    assert row[3] == "passed"
    assert "differ" not in row[4]


def test_the_sentence_names_the_oldest() -> None:
    """Of both."""
    python = min((python for python, _ in TESTED), key=Version)
    assert f"It needs Python {python} and torch {OLDEST_TORCH} or newer." in INSTALL
