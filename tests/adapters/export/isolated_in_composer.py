"""The built-in callbacks in Composer's Trainer: each has the effect that it has here."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from default_fits import NAMES, run_beside_defaults
from host_fits import InComposer
from pairs import (
    PAIRS,
    REFUSED,
    differences,
    order_differences,
    resumed_differences,
    runs_in,
)

from trainer_hooks.adapters.export.composer import COMPOSER_EVENTS
from trainer_hooks.errors import CallbackError

# Composer imports torchvision, which it needs for models of its own alone
sys.path.append(str(Path(__file__).parents[1] / "composer" / "stand_ins"))
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.exhaustive]

IMPORTS = ("tests/adapters/composer/stand_ins", "composer")


@pytest.mark.parametrize("name", runs_in("composer"))
def test_it_has_the_same_effect(name, tmp_path):
    assert differences(PAIRS[name], InComposer(), tmp_path) == []


@pytest.mark.parametrize("name", [n for n in runs_in("composer") if PAIRS[n].resumes])
def test_it_goes_on_after_a_resume(name, tmp_path):
    assert resumed_differences(PAIRS[name], InComposer(), tmp_path) == []


@pytest.mark.parametrize("accumulate", [1])
def test_hooks_come_in_the_order_of_our_trainer(accumulate, tmp_path):
    events = COMPOSER_EVENTS
    assert order_differences(InComposer(), events, tmp_path, accumulate=accumulate) == ""


@pytest.mark.parametrize("name", [n for n, row in REFUSED.items() if "composer" in row[1]])
def test_it_is_refused_as_it_is_converted(name):
    make, _, reason = REFUSED[name]
    with pytest.raises(CallbackError, match=reason):
        InComposer().convert(make(InComposer()))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", NAMES)
def test_it_runs_beside_the_defaults_or_is_refused(name, tmp_path, monkeypatch):
    """With validation, sanity check, bars and loggers on; none dies in the run."""
    monkeypatch.chdir(tmp_path)
    run_beside_defaults(name, "composer")
