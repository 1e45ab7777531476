"""Run the tests of the rooms that differ from a commit, and of the rooms above that import them.

The rooms and their layers are those of `setup.cfg`; who imports whom is read from the code by
grimp, which import-linter uses. pytest-testmon would choose single tests by the lines that each
ran, but sees nothing of what runs in child processes, and slows down each run to record it.
"""

from __future__ import annotations

import configparser
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SUITES = {
    "architecture": None,
    "benchmarks": {"benchmarks"},
    "contract": {"callbacks", "testing", "loops", "trainer"},
    "distributed": {"runtime", "loops", "trainer", "checkpoint"},
    "docs": None,
    "examples": {"examples", "trainer", "callbacks"},
    "lightning": {"compat", "adapters", "trainer", "loops", "module"},
    "pages": None,
    "plugins": {"hooks", "connector", "cli", "adapters", "plugins_example"},
    "programs": {"compat", "adapters", "trainer", "loops"},
    "release": {"trainer_hooks", "pyproject.toml"},
    "resume": {"checkpoint", "data", "loops", "trainer", "context", "callbacks", "metrics"},
}
"""The folders of tests that belong to no room, with what they test; None where that is all."""

OTHER_TESTS = {"plugins_example"}
"""Folders at the top that have tests of their own."""

EVERYTHING = ("tests/support/", "tests/conftest.py", "tests/isolated.py", "setup.cfg",
              "pyproject.toml", "constraints.txt")  # fmt: skip
"""Beginnings of the paths on which all tests depend."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer `--touched`."""
    group = parser.getgroup("trainer_hooks' own tests")
    group.addoption(
        "--touched",
        nargs="?",
        const="HEAD",
        metavar="COMMIT",
        help="run the tests of the rooms that differ from a commit (default: HEAD), and of the "
        "rooms above that import them",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Find out which folders of tests are run."""
    if config.option.touched is not None:
        config.stash[_FOLDERS] = folders_to_test(changed_files(config.option.touched))


_FOLDERS = pytest.StashKey[set[str] | None]()
"""The names of folders and files in `tests/` whose tests are run; None for all."""


def pytest_report_header(config: pytest.Config) -> str | None:
    """Name the folders whose tests are run."""
    if _FOLDERS not in config.stash:
        return None
    folders = config.stash[_FOLDERS]
    told = "all" if folders is None else ", ".join(sorted(folders)) or "none"
    return f"tests of what differs from {config.option.touched}: {told}"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the folders of tests that nothing touches."""
    folders = config.stash.get(_FOLDERS, None)
    if folders is None or not collection_path.is_relative_to(ROOT):
        return None
    top, *below = collection_path.relative_to(ROOT).parts
    if top in OTHER_TESTS:
        return None if top in folders else True
    return None if not below or below[0] in folders else True


def changed_files(commit: str) -> list[str]:
    """Return the paths that differ between a commit and the files here, those new to git too.

    Raises:
        pytest.UsageError: there is no such commit.
    """
    if _git("rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}") is None:
        raise pytest.UsageError(
            f"--touched {commit!r}: there is no such commit here. Name a commit, a branch or a "
            "tag, such as --touched=main or --touched=HEAD~1."
        )
    changed = _git("diff", "--name-only", "--no-renames", commit, "--") or []
    return [*changed, *(_git("ls-files", "--others", "--exclude-standard") or [])]


def _git(*words: str) -> list[str] | None:
    """Return the lines that a command of git prints; None if it fails."""
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else None


def folders_to_test(changed: list[str]) -> set[str] | None:
    """Return the folders and files in `tests/` to run for changed paths, and None for all."""
    if any(path.startswith(EVERYTHING) for path in changed):
        return None
    parts = [path.split("/") for path in changed]
    touched = {part for top, *below in parts for part in (top, *below[: top == "tests"])}
    rooms = {
        below[0].removesuffix(".py") for top, *below in parts if top == "trainer_hooks"
    } & layers().keys()
    touched |= rooms.union(*map(rooms_above, rooms))
    suites = {name for name, tested in SUITES.items() if tested is None or tested & touched}
    files = {f"test_{room.removeprefix('_')}.py" for room in touched}
    names = touched | files | suites if changed else set()
    return {name for name in names if (ROOT / "tests" / name).exists() or name in OTHER_TESTS}


def layers() -> dict[str, int]:
    """Return each room with the number of its layer in `setup.cfg`, the lowest layer being 0."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    lines = config["importlinter:contract:rooms"]["layers"].split("\n")
    from_below = [line for line in reversed(lines) if line.strip()]
    return {
        room: number
        for number, line in enumerate(from_below)
        for room in re.split(r"[\s:|]+", line.strip())
    }


def rooms_above(room: str) -> set[str]:
    """Return the rooms in higher layers, or beside it in the same, that import a room."""
    import grimp

    graph = grimp.build_graph("trainer_hooks", cache_dir=str(ROOT / ".import_linter_cache"))
    numbers = layers()
    prefix = f"trainer_hooks.{room}"
    importers = {
        importer.split(".")[1]
        for module in graph.modules
        if module == prefix or module.startswith(f"{prefix}.")
        for importer in graph.find_modules_that_directly_import(module)
        if "." in importer
    }
    return {
        importer
        for importer in importers - {room}
        # an import for annotations may look up
        if importer in numbers and numbers[importer] >= numbers[room]
    }
