"""The first run with a callback names the random generators that it draws from, and no others."""

from __future__ import annotations

import importlib
import os
import random
import sys

import pytest

from trainer_hooks import Callback
from trainer_hooks.testing import TinyModule
from trainer_hooks.testing.harness import CallbackHarness, FirstRun

NAME = "draws_when_imported"


class Imports(Callback):
    """Imports a module inside a hook, where it is first needed."""

    def on_train_start(self, trainer, module):
        importlib.import_module(NAME)


class ImportsAndDraws(Imports):
    """Draws in each run beside that."""

    def on_train_epoch_start(self, trainer, module):
        random.random()


class Draws(Callback):
    """Draws in the constructor."""

    def __init__(self) -> None:
        random.random()


@pytest.fixture
def first_run(tmp_path, monkeypatch):
    """Make the first run with a callback; the module that draws was not imported before."""
    (tmp_path / f"{NAME}.py").write_text("import random\n\nrandom.random()\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, NAME, raising=False)

    def run(factory, make_module=TinyModule) -> FirstRun:
        folder, options = tmp_path / "runs", {"max_epochs": 1}
        return CallbackHarness(factory, make_module, options, frozenset(), folder).first_run

    yield run
    sys.modules.pop(NAME, None)


def test_a_first_import_inside_a_hook_is_not_the_callbacks_draw(first_run) -> None:
    """A module that draws as it is imported changes the first run of a process alone."""
    assert first_run(Imports).consumed == []
    assert NAME in sys.modules


class ImportsAndSets(Imports):
    """Leaves another variable in each run."""

    def on_fit_end(self, trainer, module):
        os.environ["LEFT_BY_THE_CALLBACK"] = "yes"


def test_what_a_first_import_changes_is_not_the_callbacks_doing(first_run, tmp_path) -> None:
    """A library that sets a variable or filters warnings as it is imported is named in a note."""
    text = "import os, warnings\nos.environ['SET_BY_IMPORT'] = '1'\nwarnings.simplefilter('once')\n"
    (tmp_path / f"{NAME}.py").write_text(text, encoding="utf-8")
    run = first_run(ImportsAndSets)
    assert [change.what for change in run.changes] == [
        "environment variable 'LEFT_BY_THE_CALLBACK'"
    ]
    assert {change.what for change in run.import_changes} == {
        "environment variable 'SET_BY_IMPORT'", "warnings 'filters'",
    }  # fmt: skip
    assert run.imported == [NAME]


def test_a_first_import_without_the_callback_is_not_its_draw_either(first_run) -> None:
    """A module that draws as it is imported by the trained module changes no later run."""

    class Imported(TinyModule):
        def on_train_start(self):
            importlib.import_module(NAME)

    assert first_run(Callback, Imported).consumed == []
    assert NAME in sys.modules


def test_a_callback_that_imports_and_draws_is_named(first_run) -> None:
    """Its draws show in the second run, which imports nothing."""
    run = first_run(ImportsAndDraws)
    assert run.consumed == ["python"]
    assert run.errors == {}


def test_a_constructor_that_draws_is_named(first_run) -> None:
    """The constructor is a part of the run: its draws count as well."""
    assert first_run(Draws).consumed == ["python"]
