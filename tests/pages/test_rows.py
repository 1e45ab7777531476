"""Each promise of the pages of other frameworks is shown by a test.

A data file beside this one has the rows of the pages of one framework. A row says in short words
one thing that its page promises, and names the tests that show it here, `FILE::NAME`, or programs
that a test compares with the framework's. Where the behaviour differs on purpose, `differs` names
the section of the docs that says so, `PAGE#ANCHOR`.
"""

from __future__ import annotations

import collections
import re
import tomllib
from pathlib import Path

import pytest
from named_tests import definitions

ROOT = Path(__file__).parents[2]
FILES = sorted(Path(__file__).parent.glob("*.toml"))

_FENCED = re.compile(r"^( *)```.*?^\1```", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#{1,4} +(.+?) *$", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


def rows_of(file: Path) -> list[dict]:
    """Return the rows of a data file."""
    return tomllib.loads(file.read_text(encoding="utf-8"))["row"]


def anchors_of(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and the site write them."""
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    titles = [_LINK.sub(r"\1", title).lower() for title in _HEADING.findall(text)]
    return {re.sub(r"[^\w -]", "", title).replace(" ", "-") for title in titles}


def places_of(row: dict) -> list[str]:
    """Return the tests that a row names, `FILE::NAME`."""
    return [row["test"]] if isinstance(row["test"], str) else row["test"]


def is_defined(place: str, names_of) -> bool:
    """Return whether a file has a name: of `FILE::NAME` or `FILE#NAME`."""
    path, _, name = re.split("(::|#)", place, maxsplit=1)
    return (ROOT / path).is_file() and name in names_of(ROOT / path)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_rows_are_well_formed(file: Path) -> None:
    """A row has what it says, its tests, perhaps its difference, and nothing else; once."""
    rows = rows_of(file)
    assert rows
    wrong = [
        row
        for row in rows
        if not {"says", "test"} <= row.keys() <= {"says", "test", "differs"}
        or not (row["says"] and places_of(row))
    ]
    assert wrong == []
    counts = collections.Counter(row["says"] for row in rows)
    assert [says for says, count in counts.items() if count > 1] == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_tests_of_the_rows_are_there(file: Path) -> None:
    """Each file defines the test that a row names."""
    places = {place for row in rows_of(file) for place in places_of(row)}
    assert [place for place in sorted(places) if not is_defined(place, definitions)] == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_differences_of_the_rows_are_in_the_docs(file: Path) -> None:
    """Each page has the section that a row names."""
    places = {row["differs"] for row in rows_of(file) if "differs" in row}
    assert [place for place in sorted(places) if not is_defined(place, anchors_of)] == []
