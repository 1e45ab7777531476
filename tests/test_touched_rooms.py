"""`--touched` runs the tests of rooms that differ from a commit, and of rooms that import them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import touched_rooms
import warm_python

ROOT = Path(__file__).parents[1]
ALWAYS = {"architecture", "docs", "pages"}


def test_each_folder_of_tests_is_a_room_or_says_what_it_tests() -> None:
    """A folder that is neither would never be touched."""
    rooms = touched_rooms.layers().keys()
    folders = {path.parent.name for path in (ROOT / "tests").glob("*/test_*.py")}
    folders |= {path.parent.parent.name for path in (ROOT / "tests").glob("*/*/test_*.py")}
    assert folders - rooms <= touched_rooms.SUITES.keys()
    assert touched_rooms.SUITES.keys() <= folders - rooms
    tested = {name for names in touched_rooms.SUITES.values() for name in names or ()}
    at_the_top = {path.name for path in ROOT.iterdir()}
    assert tested <= rooms | at_the_top


def test_a_change_touches_the_rooms_above_that_import_its_room() -> None:
    """The order of the layers is that of `setup.cfg`; a room below is never touched."""
    folders = touched_rooms.folders_to_test(["trainer_hooks/profilers/simple.py"])
    assert {"profilers", "callbacks", "trainer", "contract", *ALWAYS} <= folders
    assert folders.isdisjoint({"hooks", "metrics", "checkpoint", "loops", "data"})
    above = touched_rooms.rooms_above("module")
    assert {"loops", "trainer", "compat"} <= above
    assert "hooks" not in above  # whose annotations name the module


@pytest.mark.parametrize(
    ("path", "folders"),
    [
        ("tests/clock/test_time.py", {"clock"}),
        ("tests/test_errors.py", {"test_errors.py"}),
        ("docs/data.md", {"docs"}),
        ("plugins_example/vision/README.md", {"plugins_example", "plugins"}),
        ("trainer_hooks/compat/missing.py", {"compat", "lightning", "programs", "release"}),
    ],
)
def test_a_path_touches_what_is_tested_by_it(path, folders) -> None:
    """A file of a test, a page, a package of an example, a room at the top."""
    found = touched_rooms.folders_to_test([path])
    assert found == folders | ALWAYS


@pytest.mark.parametrize(
    "path", ["tests/support/samples.py", "tests/conftest.py", "setup.cfg", "constraints.txt"]
)
def test_what_all_tests_depend_on_touches_all(path) -> None:
    """Their settings, what they share, the packages that are installed."""
    assert touched_rooms.folders_to_test([path, "docs/data.md"]) is None


def test_nothing_is_touched_where_nothing_differs() -> None:
    """No folder, not even those that are always run with others."""
    assert touched_rooms.folders_to_test([]) == set()


def test_changed_files_are_those_that_differ_and_those_that_git_does_not_know(
    tmp_path, monkeypatch
) -> None:
    """Both names of a file that was renamed are among them; ignored files are not."""
    monkeypatch.setattr(touched_rooms, "ROOT", tmp_path)

    def git(*words: str) -> None:
        name = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
        subprocess.run(["git", *name, *words], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-q")
    for name in ("kept", "changed", "renamed"):
        (tmp_path / name).write_text(name)
    (tmp_path / ".gitignore").write_text("*.log")
    git("add", "-A")
    git("commit", "-qm", "base")
    (tmp_path / "changed").write_text("other")
    (tmp_path / "renamed").rename(tmp_path / "moved")
    (tmp_path / "a.log").write_text("")
    assert sorted(touched_rooms.changed_files("HEAD")) == ["changed", "moved", "renamed"]
    git("add", "-A")
    git("commit", "-qm", "next")
    assert touched_rooms.changed_files("HEAD") == []
    assert sorted(touched_rooms.changed_files("HEAD~1")) == ["changed", "moved", "renamed"]
    with pytest.raises(pytest.UsageError, match="--touched 'typo': there is no such commit here"):
        touched_rooms.changed_files("typo")


@pytest.mark.slow
def test_the_option_leaves_out_the_other_rooms() -> None:
    """In a command with and without the name of a commit."""
    code = (
        "import sys, pytest, touched_rooms as t; t.changed_files = lambda c: ['tests/clock/x.py'];"
        "sys.exit(pytest.main(['--collect-only', '-q', '-v', '-n', '0', '-m', 'not slow',"
        " '-W', 'ignore::pytest.PytestAssertRewriteWarning',"
        " '--touched=HEAD', 'tests/clock', 'tests/hooks']))"
    )
    done = warm_python.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, 'tests/support'); {code}"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "tests of what differs from HEAD: architecture, clock, docs, pages\n" in done.stdout
    assert "<Module test_time.py>" in done.stdout
    assert "<Module test_band.py>" not in done.stdout
