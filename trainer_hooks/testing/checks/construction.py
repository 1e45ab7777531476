"""Checks of a callback that has not run: it can be made, and its hooks are hooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks.connector import declared_by_bases
from trainer_hooks.errors import CallbackError
from trainer_hooks.hooks import HOOKS, doubts, faults, installed_hooks
from trainer_hooks.testing.checks.finding import Findings, raised
from trainer_hooks.testing.report import Defect

if TYPE_CHECKING:
    from trainer_hooks.callback import Callback
    from trainer_hooks.hooks import HookSpec
    from trainer_hooks.testing.bench import Bench

__all__ = ["check_construction", "check_hook_names", "check_hook_signatures", "check_shared_state"]


def check_construction(bench: Bench) -> Findings:
    """Find a factory that does not make a new callback each time."""
    trial = bench.trial
    if isinstance(trial.make_error, CallbackError):
        yield Defect("the factory makes a callback", str(trial.make_error), "Return an instance.")
    elif trial.make_error is not None:
        yield raised(
            trial.make_error,
            "when the callback is made, twice",
            "Give the factory all arguments that the constructor needs.",
        )
    elif trial.callback is trial.twin:
        yield Defect(
            "the factory makes a new callback each time",
            f"it returned the same object, {trial.callback!r}, twice",
            "Construct it inside the factory: lambda: MyCallback(...).",
        )


def check_hook_names(bench: Bench) -> Findings:
    """Find methods that look like hooks and are none."""
    callback = _made(bench)
    for sentence in doubts(callback, _hooks(), declared_by_bases(callback)):
        yield Defect("every public method named on_... is a hook", sentence, "Rename it.")


def check_hook_signatures(bench: Bench) -> Findings:
    """Find hooks that cannot be called as they will be."""
    for sentence in faults(_made(bench), _hooks()):
        yield Defect(
            "every hook can be called with its arguments",
            sentence,
            "Give it the signature that it has in trainer_hooks.Hooks.",
        )


def check_shared_state(bench: Bench) -> Findings:
    """Find what two callbacks have in common and a run of one changes."""
    for sentence in bench.trial.shared:
        yield Defect(
            "a run with one callback leaves another one of the same factory as it was",
            sentence,
            "Make the value in __init__, a new one for each instance.",
        )


def _hooks() -> dict[str, HookSpec]:
    """Return every hook that there is, those of installed packages included."""
    return {**HOOKS, **installed_hooks()}


def _made(bench: Bench) -> Callback:
    return bench.trial.callback or bench.make()
