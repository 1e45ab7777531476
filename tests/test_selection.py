"""Which tests a command runs: exhaustive ones are left out unless they are asked for."""

from __future__ import annotations

import re
import sys
from itertools import combinations, product
from pathlib import Path

import pytest
import warm_python
from samples import one_in, pairwise

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]


def collected(*words: str) -> set[str]:
    """Return the tests that a command would run."""
    done = warm_python.run(
        [sys.executable, "-m", "pytest", "-q", "--collect-only", "-n", "0", *words],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 5), done.stdout + done.stderr
    return {line for line in done.stdout.splitlines() if "::" in line}


def test_exhaustive_tests_are_run_if_they_are_asked_for() -> None:
    """By the option, by the marker, and by the name of their file."""
    folder, file = "tests/adapters/export", "tests/adapters/export/test_in_processes.py"
    usual, all_ = collected(folder), collected(folder, "--exhaustive")
    assert usual < all_
    assert collected(folder, "-m", "exhaustive") == all_ - usual
    assert {test for test in all_ if test.startswith(file)} == collected(file)
    assert not any(test.startswith(file) for test in usual)
    named = "tests/adapters/export/isolated_in_transformers.py"
    assert any(test.startswith(named) for test in all_ - usual)


def test_fast_tests_are_those_of_all_that_are_not_slow() -> None:
    """A file that is left out as a whole is not imported; nothing else changes by that."""
    for folder in ("tests/distributed", "tests/adapters/ignite"):
        fast, all_ = collected(folder, "-m", "not slow"), collected(folder, "--exhaustive")
        assert fast == all_ - collected(folder, "-m", "slow or exhaustive")


def test_one_in_so_many_is_run_always() -> None:
    """The first of each group; the marks and names that a value has stay."""
    assert [one.marks[0].name for one in one_in(4, "abc", otherwise="slow")[1:]] == ["slow"] * 2
    named = pytest.param(3, 4, marks=pytest.mark.xfail, id="a name")
    found = one_in(3, ["a", "b", ("c", "d"), "e", named])
    marks = [[mark.name for mark in getattr(one, "marks", ())] for one in found]
    assert marks == [[], ["exhaustive"], ["exhaustive"], [], ["xfail", "exhaustive"]]
    assert (found[2].values, found[4].values, found[4].id) == ((("c", "d"),), (3, 4), "a name")


def test_any_two_choices_come_together_in_what_is_run_always() -> None:
    """As they do in all combinations, in few of them."""
    values = list(product("abcde", (1, 2, 3), (True, False)))
    values.remove(("a", 1, True))
    found = [one.values for one in pairwise(values) if not one.marks]

    def pairs(combinations_):
        return {pair for one in combinations_ for pair in combinations(enumerate(one), 2)}

    assert len(values) == len(pairwise(values)) == 29
    assert pairs(found) == pairs(values)
    assert len(found) < 18


def test_each_command_of_the_pages_names_a_marker_that_there_is() -> None:
    """`-m` with an unknown marker would leave nothing out."""
    config = (ROOT / "setup.cfg").read_text(encoding="utf-8")
    known = set(re.findall(r"^    (\w+): ", config, re.MULTILINE))
    for page in ("CONTRIBUTING.md", ".ci/run", ".ci/installed"):
        text = (ROOT / page).read_text(encoding="utf-8")
        for words in re.findall(r'pytest[^\n]*? -m (?:"([^"]+)"|(\w+))', text):
            used = set(re.findall(r"\w+", "".join(words))) - {"not", "and", "or"}
            assert used <= known
