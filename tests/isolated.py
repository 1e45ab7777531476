"""Tests and scripts that run in a process of their own.

Another framework changes the process that it runs in: signal handlers, random states, patched
classes, stand-ins for packages that it wants. So its tests stand apart, in files called
`isolated_*.py`. They are ordinary tests, and `pytest FILE` runs them; in a larger run this plugin
starts one process for each file, once for all workers, and reports each test under its own name.
Such a file imports from its own folder, and from a folder `stand_ins` beside it. Its constant
`IMPORTS` names modules that take long to import, and folders that they are looked for in: they are
imported once for several processes.

A script that only writes down results is run by the fixture `results_of`.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import warm_python
from pytest_runs import without_pytest

from trainer_hooks._system import lock_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

ROOT = Path(__file__).parents[1]
SUPPORT = ROOT / "tests" / "support"
RESULTS = "TRAINER_HOOKS_ISOLATED_RESULTS"
"""The environment variable that names the file for the results, in the process of such a file."""


def run_once(config: pytest.Config, name: str, make: Callable[[Path], Any]) -> Any:
    """Return what `make(folder)` returns as plain data; one worker of pytest calls it for all."""
    shared = config._tmp_path_factory.getbasetemp()  # of this worker
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent  # of all workers
    folder = shared / name
    result = folder / "once.json"
    with (shared / f"{name}.lock").open("w") as lock:
        lock_file(lock.fileno(), waits=True)
        if not result.exists():
            if folder.exists():  # of another worker, whose call failed: what it left may look done
                shutil.rmtree(folder)
            folder.mkdir()
            result.write_text(json.dumps(make(folder)), encoding="utf-8")
    return json.loads(result.read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def once(pytestconfig: pytest.Config) -> Callable[[str, Callable[[Path], Any]], Any]:
    """Make something once, also where several workers of pytest ask for it."""
    return lambda name, make: run_once(pytestconfig, name, make)


@pytest.fixture(scope="session")
def results_of(once) -> Callable[..., dict]:
    """The results that a script writes, which runs once for all workers of pytest."""

    def run(
        script: Path, *path: str | Path, words: Iterable[str] = (), imports: tuple[str, ...] = ()
    ) -> dict:
        """Run `script TARGET WORDS`; it imports from this checkout, `tests/support` and `path`.

        The modules in `imports` are imported once for several scripts.
        """

        def results(folder: Path) -> dict:
            target = folder / "results.json"
            done = warm_python.run(
                [sys.executable, script, target, *words],
                cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (*path, SUPPORT, ROOT)))},
                imports=_installed(imports),
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            return json.loads(target.read_text(encoding="utf-8"))

        return once("-".join((*script.relative_to(ROOT).with_suffix("").parts, *words)), results)

    return run


def _installed(modules: Iterable[str]) -> tuple[str, ...]:
    """Return the modules whose packages are installed; a relative folder becomes absolute."""
    return tuple(
        str(ROOT / name) if "/" in name else name
        for name in modules
        if "/" in name or find_spec(name.partition(".")[0]) is not None
    )


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> IsolatedFile | None:
    """Collect the tests of an isolated file without importing it."""
    if not file_path.match("isolated_*.py"):
        return None
    if file_path in _named_paths(parent.config):
        sys.path[:0] = [str(file_path.parent), str(file_path.with_name("stand_ins"))]
        return None
    return IsolatedFile.from_parent(parent, path=file_path)


def _named_paths(config: pytest.Config) -> Iterator[Path]:
    """Yield the files on the command line: pytest itself collects and runs those."""
    for word in config.invocation_params.args:
        path = Path(str(word).partition("::")[0])
        if path.suffix == ".py":
            yield config.invocation_params.dir / path


class IsolatedFile(pytest.File):
    """A file whose tests run in a process of their own."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield an item for each test function, of which some may be imported by name.

        Marks of the whole file apply to each.
        """
        text = self.path.read_text(encoding="utf-8")
        is_exhaustive = "pytest.mark.exhaustive" in text
        for node in ast.parse(text).body:
            defined = [node] if isinstance(node, ast.FunctionDef) else []
            imported = node.names if isinstance(node, ast.ImportFrom) else []
            for function in (*defined, *imported):
                if function.name.startswith("test_"):
                    item = IsolatedTest.from_parent(self, name=function.name)
                    item.add_marker("exhaustive" if is_exhaustive else "slow")
                    yield item

    def outcomes(self) -> dict[str, list[str]]:
        """Return outcome and text of each test, from one run of the file."""

        imports = re.search(r"^IMPORTS = (\(.*?\))$", self.path.read_text(encoding="utf-8"), re.M)

        def run(folder: Path) -> dict[str, list[str]]:
            target = folder / "outcomes.json"
            done = warm_python.run(
                [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o",
                 "filterwarnings=default", str(self.path)],
                cwd=ROOT, capture_output=True, text=True, timeout=600, check=False,
                env={**without_pytest(), RESULTS: str(target)},
                imports=_installed(ast.literal_eval(imports[1]) if imports else ()),
            )  # fmt: skip
            assert target.exists(), done.stdout + done.stderr
            return json.loads(target.read_text(encoding="utf-8"))

        name = "-".join(self.path.relative_to(ROOT).with_suffix("").parts)
        return run_once(self.config, name, run)


class IsolatedTest(pytest.Item):
    """A test of an isolated file."""

    def runtest(self) -> None:
        """Report the outcome of the test."""
        outcomes = self.parent.outcomes()
        of_file = outcomes.get(FILE, ["failed", "it did not run"])
        outcome, text = outcomes.get(self.name, of_file)
        if outcome == "skipped":
            pytest.skip(text)
        if outcome != "passed":
            raise IsolatedFailure(text)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> str:
        """Show the text of the other process for a failure there."""
        if isinstance(excinfo.value, IsolatedFailure):
            return str(excinfo.value)
        return str(super().repr_failure(excinfo, style))


class IsolatedFailure(Exception):
    """The failure of a test in its own process."""


FILE = ""
"""The name under which a file notes that it is skipped or broken as a whole."""

_outcomes: dict[str, list[str]] = {}


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Note that the file is skipped or broken as a whole, in its own process."""
    if not report.passed:
        _note(FILE, report)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note how a test ended, in the process of an isolated file."""
    # all cases of a test are one item: it fails if one of them does
    name = report.location[2].partition("[")[0]
    if not report.passed:
        _note(name, report)
    elif report.when == "call":
        _outcomes.setdefault(name, ["passed", ""])


def _note(name: str, report: pytest.CollectReport | pytest.TestReport) -> None:
    """Note a failure, or a skip with its reason."""
    if report.skipped:
        text = str(report.longrepr[-1]).removeprefix("Skipped: ")
        _outcomes.setdefault(name, ["skipped", text])
    else:
        _outcomes[name] = ["failed", report.longreprtext]


def pytest_sessionfinish() -> None:
    """Write the outcomes down, in the process of an isolated file."""
    if RESULTS in os.environ:
        Path(os.environ[RESULTS]).write_text(json.dumps(_outcomes), encoding="utf-8")
