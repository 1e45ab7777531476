"""The pytest plugin, in pytest runs of its own."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # pytest in processes of its own

pytest_plugins = ["pytester"]

PLUGIN = "trainer_hooks.testing.pytest_plugin"
ROOT = Path(__file__).parents[2]

CALLBACKS = """
from trainer_hooks import Callback

class Good(Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        pass

class Bad(Callback):
    def on_test_end(self, trainer, module):
        raise ValueError("no tests")
    def on_fit_strat(self, trainer, module):
        pass
"""


@pytest.fixture
def inner(pytester, monkeypatch):
    """A function that runs pytest over some lines, in a process of its own."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *sys.path]))
    installed = {point.value for point in importlib.metadata.entry_points(group="pytest11")}

    def run(lines: str, *options: str):
        pytester.makepyfile(CALLBACKS + lines)
        loaded = [] if PLUGIN in installed else ["-p", PLUGIN]
        return pytester.runpytest_subprocess(*loaded, "-p", "no:cacheprovider", *options)

    return run


@pytest.mark.exhaustive
def test_the_fixture_passes_and_fails_tests(inner) -> None:
    """A good callback passes and has its costs printed; a bad one fails with its defects alone.

    The costs are properties of the test, so that a JUnit file holds them.
    """
    lines = """
def test_good(callback_contract):
    report = callback_contract(Good, skip=["resumes"])
    assert report.is_passed

def test_bad(callback_contract):
    callback_contract(lambda: Bad(), skip=["resumes"])
"""
    result = inner(lines, "--junitxml=report.xml")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "callback Bad breaks the contract in 2 of 15 checks.",
            "hook_names: every method named on_... is a hook.",
            "*Did you mean 'on_fit_start'?*",
            "orders: fit, validate, test and predict raise nothing, in any order.",
            "*ValueError: no tests (raised in hook 'on_test_end'*",
            "*what callbacks cost*",
            "Good: * us in the hooks of each training batch, *",
            "Bad: * us in the hooks of each training batch, *",
        ]
    )
    result.stdout.no_fnmatch_line("*examine_callback*")
    assert '<property name="callback_cost" value="Good: ' in Path("report.xml").read_text()


def test_a_run_that_does_not_use_it_does_not_notice(inner) -> None:
    """Loaded in a pytest run that has nothing to do with it, it imports no torch, says nothing."""
    result = inner("""
def test_nothing():
    import sys
    assert "torch" not in sys.modules
    assert "trainer_hooks.trainer.trainer" not in sys.modules
""")
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*what callbacks cost*")


def test_importing_the_plugin_imports_no_torch() -> None:
    """Whoever has the package installed pays for pytest's plugin at each start: hardly anything."""
    code = (
        f"import pytest, sys; before = set(sys.modules); import {PLUGIN}; "
        "new = set(sys.modules) - before; "
        "assert not {'torch', 'numpy', 'rich', 'tqdm'} & new, new; "
        "assert len(new) < 12, new"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, timeout=60)


def test_the_package_announces_the_plugin() -> None:
    """The entry point in pyproject.toml is the module that there is."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"trainer_hooks": PLUGIN}
