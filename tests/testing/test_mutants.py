"""The kit finds nearly all mutants of built-in callbacks that change a run."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

EVERY = 12
"""Of the mutants of some callbacks each so many; a command takes all:
`python tests/testing/mutants.py --jobs 2`."""


@pytest.fixture
def mutants(monkeypatch):
    """The module that mutates, judges and counts; it stands beside this file, and is a command."""
    monkeypatch.syspath_prepend(Path(__file__).parent)
    return importlib.import_module("mutants")


@pytest.mark.exhaustive
def test_the_kit_finds_the_mutants_that_change_a_run(mutants) -> None:
    """Of a fixed share, all but one of those that a judge without the kit sees change a run."""
    every = [(name, mutation) for name in mutants.SAMPLED for mutation in mutants.mutants_of(name)]
    verdicts = [mutants.examine(*each) for each in every[::EVERY]]
    that_change = [verdict for verdict in verdicts if verdict.change]
    missed = [verdict for verdict in that_change if verdict.is_missed]
    assert len(that_change) >= 10
    # one in so small a share; the command says how many of all it is
    assert len(missed) <= max(1, 0.05 * len(that_change)), mutants.summary(verdicts)


@pytest.mark.exhaustive
def test_sound_callbacks_are_judged_to_change_nothing(mutants, tmp_path) -> None:
    """The judge sees no difference where nothing was done to a callback."""
    case = mutants.case_of("ModelCheckpoint, best and last")
    assert mutants.changes(case, case, tmp_path) == ""
