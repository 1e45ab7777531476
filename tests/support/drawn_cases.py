"""Which tests a command runs: exhaustive cases are drawn by a seed, one in eight of them.

The seed is the hash of the commit, so that each commit tries other cases; `--draw-seed` sets it.
Any eight consecutive seeds draw each case once. All cases run with `--exhaustive`, with
`-m exhaustive`, and where their file is named.

A file whose `pytestmark` is `exhaustive` is drawn as a whole, and not imported otherwise: most of
those import a framework, or share one child process.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

ONE_IN = 8
"""Of so many exhaustive cases one is drawn."""

_WHOLE_FILE = re.compile(
    r"^pytestmark = (?:\[[^\]]*?)?pytest\.mark\.(slow|exhaustive)\b", re.MULTILINE
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer `--exhaustive` and `--draw-seed`."""
    group = parser.getgroup("trainer_hooks' own tests")
    group.addoption("--exhaustive", action="store_true", help="run all cases marked `exhaustive`")
    group.addoption(
        "--draw-seed",
        metavar="SEED",
        help=f"draw 1 in {ONE_IN} of the exhaustive cases by this whole number (default: the hash "
        "of the commit)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Set the seed of the run, which the workers of pytest-xdist take over."""
    given = config.option.draw_seed
    if given is None:
        config.option.draw_seed = _seed_of_commit()
    elif not isinstance(given, int):
        if not re.fullmatch("[0-9]{1,7}", given):
            raise pytest.UsageError(
                f"--draw-seed {given!r}: a seed is a whole number from 0 to 9999999. Write "
                "--draw-seed=7, or leave the option out for the seed of the commit."
            )
        config.option.draw_seed = int(given)


def _seed_of_commit() -> int:
    """Return the first digits of the commit's hash as a number; 0 outside of a git checkout."""
    try:
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return 0
    return int(done.stdout[:5], 16)


def pytest_report_header(config: pytest.Config) -> str | None:
    """Name the seed, and the command that draws the same cases again."""
    if config.option.markexpr == "not slow":
        return None
    seed = config.option.draw_seed
    drawn = "all" if _is_all_asked(config) else f"1 in {ONE_IN} drawn"
    words = [w for w in config.invocation_params.args if not str(w).startswith("--draw-seed=")]
    again = shlex.join(["pytest", *map(str, words), f"--draw-seed={seed}"])
    return f"exhaustive cases: {drawn}, seed {seed}; the same again: {again}"


def is_drawn(index: int, seed: int) -> bool:
    """Whether a seed draws a case, by the case's number."""
    return (index + seed) % ONE_IN == 0


def _is_all_asked(config: pytest.Config) -> bool:
    return config.option.exhaustive or "exhaustive" in config.option.markexpr


def _is_named(path: Path, config: pytest.Config) -> bool:
    """Whether a file stands on the command line, or a test of it."""
    words = (str(word).partition("::")[0] for word in config.invocation_params.args)
    return path in {config.invocation_params.dir / word for word in words}


def runs_all_of(path: Path, config: pytest.Config) -> bool:
    """Whether a command runs all exhaustive cases of a file, and draws none."""
    return _is_all_asked(config) or _is_named(path, config)


_whole_files: dict[Path, int] = {}
"""The numbers of the files that are exhaustive as a whole, in the order of their collection."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import a file whose tests would all be left out: some import whole frameworks."""
    if collection_path.suffix != ".py" or config.option.markexpr not in ("", "not slow"):
        return None
    marked = _WHOLE_FILE.search(collection_path.read_text(encoding="utf-8"))
    if marked is None:
        return None
    if config.option.markexpr == "not slow":  # exhaustive tests are slow, too
        return True
    if marked[1] == "slow" or _is_all_asked(config) or _is_named(collection_path, config):
        return None
    number = _whole_files.setdefault(collection_path, len(_whole_files))
    return None if is_drawn(number, config.option.draw_seed) else True


@pytest.hookimpl(tryfirst=True)  # before `-m`, which looks at the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark exhaustive tests as slow, and deselect those that are neither drawn nor asked for."""
    exhaustive = [item for item in items if item.get_closest_marker("exhaustive")]
    for item in exhaustive:
        item.add_marker("slow")
    if _is_all_asked(config):
        return
    unasked = [
        item
        for item in exhaustive
        if item.path not in _whole_files and not _is_named(item.path, config)
    ]
    seed = config.option.draw_seed
    left_out = {item for index, item in enumerate(unasked) if not is_drawn(index, seed)}
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session")
def draw_seed(pytestconfig: pytest.Config) -> int:
    """The seed of the run, for tests that draw: other numbers for each commit."""
    return pytestconfig.option.draw_seed


_NOT_FOUND = pytest.StashKey[str]()
"""The error of a worker that did not find a test that the command names."""


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> object:
    """Keep the error of a test that is not found, which pytest-xdist does not report."""
    try:
        return (yield)
    except pytest.UsageError as error:
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["not_found"] = str(error).splitlines()[0]
        raise


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_testnodedown(node, error) -> None:
    """Take over the error that a worker kept."""
    message = getattr(node, "workeroutput", {}).get("not_found")
    if message:
        node.config.stash[_NOT_FOUND] = message


@pytest.hookimpl(tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report a test that no worker found."""
    message = terminalreporter.config.stash.get(_NOT_FOUND, None)
    if message:
        terminalreporter.write_line(f"ERROR: {message}", red=True)
