"""The table of checks, in the order in which they run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainer_hooks.testing.checks import construction, costs, process, resume, runs, state
from trainer_hooks.testing.checks.finding import Findings, Note

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_hooks.testing.bench import Bench

__all__ = ["CHECKS", "Check", "Note"]


@dataclass(frozen=True, slots=True)
class Check:
    """One check.

    Attributes:
        name: as `skip` takes it.
        rule: what it makes sure of.
        run: yields what it found.
        needs: checks without which it would only find their defects again.
        hindrance: returns why it cannot run on this machine, or an empty text.
    """

    name: str
    rule: str
    run: Callable[[Bench], Findings]
    needs: tuple[str, ...] = ()
    hindrance: Callable[[], str] = str


_MADE = ("construction",)
_RUNS = ("construction", "hook_signatures", "first_fit")

CHECKS: tuple[Check, ...] = (
    Check(
        "construction",
        "the factory makes a new callback each time",
        construction.check_construction,
    ),
    Check(
        "hook_names", "every method named on_... is a hook", construction.check_hook_names, _MADE
    ),
    Check(
        "hook_signatures",
        "every hook can take what it is given",
        construction.check_hook_signatures,
        _MADE,
    ),
    Check(
        "first_fit",
        "a fit raises nothing",
        runs.check_first_fit,
        ("construction", "hook_signatures"),
    ),
    Check(
        "global_state",
        "the process is as it was once the trainer is closed",
        process.check_global_state,
        _MADE,
    ),
    Check(
        "random_numbers",
        "global random numbers are left alone",
        process.check_random_numbers,
        _RUNS,
    ),
    Check("shared_state", "two callbacks share no state", construction.check_shared_state, _RUNS),
    Check(
        "orders",
        "fit, validate, test and predict raise nothing, in any order",
        runs.check_orders,
        _RUNS,
    ),
    Check("closing", "teardown and close can be called twice", runs.check_closing, _RUNS),
    Check("refits", "a callback can be used again", runs.check_refits, (*_RUNS, "closing")),
    Check("failing_run", "an error of others is not covered up", runs.check_failing_run, _RUNS),
    Check("state_key", "the state_key is the same in every run", state.check_state_key, _MADE),
    Check(
        "state_round_trip",
        "the state comes back from a file as it was saved",
        state.check_state_round_trip,
        (*_RUNS, "state_key"),
    ),
    Check(
        "neighbours",
        "what belongs to others is left alone",
        state.check_neighbours,
        (*_RUNS, "state_round_trip"),
    ),
    Check(
        "resumes",
        "a run that was cut anywhere and resumed is the run that was not",
        resume.check_resumes,
        (*_RUNS, "state_round_trip", "shared_state"),
    ),
    Check("costs", "what its hooks cost", costs.measure_costs, _RUNS),
)
