"""The tests of the built-in callbacks in another trainer: each has the effect that it has here.

A file `isolated_in_*.py` imports them by name, and has two constants: `HOST`, a class of
`host_fits`, and `EVENTS`, the host's events of our hooks. Asserts here give their values as
messages, since pytest rewrites those of test files alone.
"""

from __future__ import annotations

import pytest
from default_fits import NAMES, run_beside_defaults
from pairs import (
    PAIRS,
    REFUSED,
    differences,
    order_differences,
    resumed_differences,
    runs_in,
)

from trainer_hooks.errors import CallbackError


@pytest.fixture
def host(request):
    """The trainer that the importing file is about."""
    return request.module.HOST()


@pytest.fixture
def events(request):
    """The host's events of our hooks."""
    return request.module.EVENTS


def pytest_generate_tests(metafunc):
    """Give each test its cases in this host."""
    name = metafunc.module.HOST.name
    cases = {
        "effect": runs_in(name),
        "resumed": [row for row in runs_in(name) if PAIRS[row].resumes],
        # Composer accumulates by microbatches of one batch
        "accumulate": [1] if name == "composer" else [1, 2],
        "refused": [row for row, (_, hosts, _) in REFUSED.items() if name in hosts],
        "built_in": NAMES,
    }
    for argument in cases.keys() & set(metafunc.fixturenames):
        metafunc.parametrize(argument, cases[argument])


def test_it_has_the_same_effect(effect, host, tmp_path):
    different = differences(PAIRS[effect], host, tmp_path)
    assert different == [], different


def test_it_goes_on_after_a_resume(resumed, host, tmp_path):
    different = resumed_differences(PAIRS[resumed], host, tmp_path)
    assert different == [], different


def test_hooks_come_in_the_order_of_our_trainer(accumulate, host, events, tmp_path):
    different = order_differences(host, events, tmp_path, accumulate=accumulate)
    assert different == "", different


def test_it_is_refused_as_it_is_converted(refused, host):
    make, _, reason = REFUSED[refused]
    with pytest.raises(CallbackError, match=reason):
        host.convert(make(host))


def test_it_runs_beside_the_defaults_or_is_refused(built_in, host, tmp_path, monkeypatch):
    """With validation, sanity check, bars and loggers on; none dies in the run."""
    monkeypatch.chdir(tmp_path)
    run_beside_defaults(built_in, host.name)
