"""The built-in callbacks in Ignite's engines: each has the effect that it has here."""

from __future__ import annotations

import pytest
from default_fits import NAMES, run_beside_defaults
from host_fits import InIgnite
from pairs import (
    PAIRS,
    REFUSED,
    differences,
    order_differences,
    resumed_differences,
    runs_in,
)

from trainer_hooks.adapters.export.ignite import IGNITE_EVENTS
from trainer_hooks.errors import CallbackError

pytestmark = pytest.mark.filterwarnings("ignore")

IMPORTS = ("ignite.engine", "ignite.handlers")


@pytest.mark.parametrize("name", runs_in("ignite"))
def test_it_has_the_same_effect(name, tmp_path):
    assert differences(PAIRS[name], InIgnite(), tmp_path) == []


@pytest.mark.parametrize("name", [n for n in runs_in("ignite") if PAIRS[n].resumes])
def test_it_goes_on_after_a_resume(name, tmp_path):
    assert resumed_differences(PAIRS[name], InIgnite(), tmp_path) == []


@pytest.mark.parametrize("accumulate", [1, 2])
def test_hooks_come_in_the_order_of_our_trainer(accumulate, tmp_path):
    events = IGNITE_EVENTS
    assert order_differences(InIgnite(), events, tmp_path, accumulate=accumulate) == ""


@pytest.mark.parametrize("name", [n for n, row in REFUSED.items() if "ignite" in row[1]])
def test_it_is_refused_as_it_is_converted(name):
    make, _, reason = REFUSED[name]
    with pytest.raises(CallbackError, match=reason):
        InIgnite().convert(make(InIgnite()))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", NAMES)
def test_it_runs_beside_the_defaults_or_is_refused(name, tmp_path, monkeypatch):
    """With validation, sanity check, bars and loggers on; none dies in the run."""
    monkeypatch.chdir(tmp_path)
    run_beside_defaults(name, "ignite")
