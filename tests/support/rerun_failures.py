"""Run each failed test once more, in a process of its own, after a run of many tests.

A test that passes then is unsteady: its failure came from the tests beside it or from the speed of
the machine. It is listed with both outcomes at the end of the output, the text of its failure is
in `.pytest_cache/unsteady.txt`, and the run does not fail by it. One that fails again does fail
the run, and is listed with the command that runs it alone.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from pytest_runs import without_pytest

UNSTEADY_FILE = Path(".pytest_cache", "unsteady.txt")
"""The file with the failures of unsteady tests, from pytest's root folder on."""

MOST = 30
"""With more failures than this, no accident is to blame, and none is run again."""

_AGAIN = "TRAINER_HOOKS_TESTS_AGAIN"
"""The environment variable that is set in the process of a test that runs again."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer `--no-rerun`."""
    group = parser.getgroup("trainer_hooks' own tests")
    group.addoption(
        "--no-rerun", action="store_true", help="do not run failed tests once more, each alone"
    )


@pytest.hookimpl(trylast=True)  # after the terminal reporter is there
def pytest_configure(config: pytest.Config) -> None:
    """Register the reruns where the results of all tests come together: not in a worker."""
    if not hasattr(config, "workerinput") and config.pluginmanager.hasplugin("terminalreporter"):
        config.pluginmanager.register(RerunFailures(config), "rerun of failures")


def _is_wanted(config: pytest.Config) -> bool:
    """Whether failures are run again: not where a person looks at a few tests or at the first."""
    options = config.option
    is_file_named = any(".py" in str(word) for word in config.invocation_params.args)
    is_stopped_early = options.maxfail or options.usepdb
    return not (options.no_rerun or is_file_named or is_stopped_early or _AGAIN in os.environ)


@dataclass(frozen=True, slots=True)
class Rerun:
    """The two outcomes of a test that failed once.

    Args:
        nodeid: the test's name.
        first: the first line of its failure among others.
        text: the whole text of that failure.
        is_passed: whether it passed alone.
    """

    nodeid: str
    first: str
    text: str
    is_passed: bool


class RerunFailures:
    """Runs failed tests again at the end of a session, and reports both outcomes."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.reruns: list[Rerun] = []

    @property
    def _stats(self) -> dict[str, list]:
        return self.config.pluginmanager.getplugin("terminalreporter").stats

    def _failures(self) -> dict[str, list[pytest.TestReport]]:
        """Return the reports of failures and errors of tests, by the test."""
        reports: dict[str, list[pytest.TestReport]] = {}
        for report in (*self._stats.get("failed", ()), *self._stats.get("error", ())):
            if isinstance(report, pytest.TestReport):
                reports.setdefault(report.nodeid, []).append(report)
        return reports

    @pytest.hookimpl(trylast=True)  # after the workers of pytest-xdist have ended
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Run the failed tests again; a session without any other failure has passed."""
        file = self.config.rootpath / UNSTEADY_FILE
        if _AGAIN not in os.environ and not self.config.option.collectonly:
            file.unlink(missing_ok=True)
        failures = self._failures()
        is_failed = exitstatus == pytest.ExitCode.TESTS_FAILED
        if not (is_failed and failures and _is_wanted(self.config) and len(failures) <= MOST):
            return
        for nodeid, reports in failures.items():
            self.reruns.append(self._run_again(nodeid, reports))
        steady = {rerun.nodeid for rerun in self.reruns if not rerun.is_passed}
        for kind in ("failed", "error"):
            reports = self._stats.pop(kind, [])
            left = [
                r for r in reports if getattr(r, "nodeid", None) not in failures.keys() - steady
            ]
            if left:
                self._stats[kind] = left
        unsteady = [rerun for rerun in self.reruns if rerun.is_passed]
        if unsteady:
            self._stats["unsteady"] = unsteady
            file.parent.mkdir(exist_ok=True)
            texts = [f"{_told(rerun)}\n\n{rerun.text}\n" for rerun in unsteady]
            file.write_text("\n".join(texts), encoding="utf-8")
        if not self._stats.get("failed") and not self._stats.get("error"):
            session.exitstatus = pytest.ExitCode.OK

    def _run_again(self, nodeid: str, reports: list[pytest.TestReport]) -> Rerun:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
             f"--draw-seed={self.config.option.draw_seed}", nodeid],
            cwd=self.config.rootpath, env={**without_pytest(), _AGAIN: "1"}, check=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        text = "\n".join(report.longreprtext for report in reports)
        crash = getattr(reports[0].longrepr, "reprcrash", None)
        message = crash.message if crash else text
        first = next((line for line in message.splitlines() if line.strip()), "no text")
        return Rerun(nodeid, first, text, done.returncode == 0)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """List the tests that were run again, and how to run each failed one alone."""
        write = terminalreporter.write_line
        unsteady = [rerun for rerun in self.reruns if rerun.is_passed]
        if unsteady:
            terminalreporter.write_sep("=", "unsteady: failed among others, passed alone")
            for rerun in unsteady:
                write(_told(rerun))
        failed = self._failures()
        if not failed or _AGAIN in os.environ:
            return
        terminalreporter.write_sep("=", "failed, each with the command that runs it alone")
        seed = self.config.option.draw_seed
        alone = {rerun.nodeid for rerun in self.reruns}
        for nodeid in failed:
            command = shlex.join(["pytest", f"--draw-seed={seed}", nodeid])
            write(f"{command}  # failed alone, too" if nodeid in alone else command)
        if _is_wanted(self.config) and len(failed) > MOST:
            write(f"none was run again: {len(failed)} failed, and up to {MOST} are run again")


def _told(rerun: Rerun) -> str:
    return f"{rerun.nodeid}\n    among others: failed: {rerun.first}\n    alone: passed"
