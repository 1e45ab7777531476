"""A failed test runs once more alone: an unsteady one is listed, and does not fail the run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from pytest_runs import pytest_in, written

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.exhaustive

PLUGINS = "pytest_plugins = ['drawn_cases', 'rerun_failures']\n"
STEADY = """
        import pytest
        from pathlib import Path

        def is_second_try():
            tries = Path("tries.txt")
            tries.write_text((tries.read_text() if tries.exists() else "") + "x")
            return len(tries.read_text()) > 1

        def test_passes(): pass
        """
UNSTEADY = """
        def test_unsteady(tmp_path):
            assert is_second_try(), "the machine was slow"
        """
BROKEN_SETUP = """
        @pytest.fixture
        def broken(): raise OSError("no such device")

        @pytest.mark.exhaustive
        @pytest.mark.parametrize("case", ["a b", "c"])
        def test_broken(broken, case): pass
        """


def folder_of(tmp_path: Path, *tests: str) -> Path:
    """Write a file of tests, and a conftest with the plugins."""
    return written(tmp_path, {"conftest.py": PLUGINS, "test_it.py": "".join((STEADY, *tests))})


@pytest.mark.parametrize("workers", [[], ["-n", "1"]], ids=["alone", "with a worker"])
def test_an_unsteady_test_is_listed_and_does_not_fail_the_run(tmp_path, workers) -> None:
    """Both outcomes stand at the end of the output, the whole failure in a file."""
    done = pytest_in(folder_of(tmp_path, UNSTEADY), "-m", "pytest", *workers)
    assert done.returncode == 0, done.stdout
    lines = done.stdout.splitlines()
    assert re.search(r"=+ 1 passed, 1 unsteady in .*s =+", lines[-1])
    assert "FAILED" not in done.stdout
    place = next(i for i, line in enumerate(lines) if "unsteady: failed among others" in line)
    assert lines[place + 1] == "test_it.py::test_unsteady"
    assert lines[place + 2] == "    among others: failed: AssertionError: the machine was slow"
    assert lines[place + 3] == "    alone: passed"
    text = (tmp_path / ".pytest_cache" / "unsteady.txt").read_text()
    assert "the machine was slow" in text
    assert pytest_in(tmp_path, "-m", "pytest").returncode == 0
    assert not (tmp_path / ".pytest_cache" / "unsteady.txt").exists()


def test_a_test_that_fails_again_fails_the_run(tmp_path) -> None:
    """It is named with the command that runs it alone, with the seed that drew it."""
    folder = folder_of(tmp_path, UNSTEADY, BROKEN_SETUP)
    done = pytest_in(folder, "-m", "pytest", "--draw-seed=7")
    assert done.returncode == 1, done.stdout
    assert "no such device" in done.stdout
    assert "test_it.py::test_unsteady\n    among others: failed: " in done.stdout
    command = "pytest --draw-seed=7 'test_it.py::test_broken[c]'"
    assert f"{command}  # failed alone, too" in done.stdout.splitlines()
    assert "1 passed, 1 deselected, 1 error, 1 unsteady in" in done.stdout


@pytest.mark.parametrize(
    "words", [["--no-rerun"], ["-x"], ["test_it.py"]], ids=["--no-rerun", "-x", "a file"]
)
def test_nothing_is_run_again_where_a_person_looks(tmp_path, words) -> None:
    """A failure fails the run then."""
    done = pytest_in(folder_of(tmp_path, UNSTEADY), "-m", "pytest", *words)
    assert done.returncode == 1
    assert (tmp_path / "tries.txt").read_text() == "x"
    assert "test_it.py::test_unsteady\n" in done.stdout.partition("runs it alone")[2]


def test_many_failures_are_no_accident(tmp_path) -> None:
    """None of them is run again, and the output says so."""
    many = """
        @pytest.mark.parametrize("case", range(31))
        def test_many(case): assert is_second_try() is None
        """
    done = pytest_in(folder_of(tmp_path, many), "-m", "pytest")
    assert done.returncode == 1
    assert (tmp_path / "tries.txt").read_text() == "x" * 31
    assert "none was run again: 31 failed, and up to 30 are run again" in done.stdout


def test_a_file_that_cannot_be_imported_fails_the_run(tmp_path) -> None:
    """An error of the collection is no test, and is not run again."""
    folder = folder_of(tmp_path, UNSTEADY)
    (folder / "test_other.py").write_text("import nowhere_to_be_found")
    done = pytest_in(folder, "-m", "pytest", "--continue-on-collection-errors")
    assert done.returncode == 1
    assert "1 passed, 1 error, 1 unsteady in" in done.stdout
