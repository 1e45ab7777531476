"""Checks of what a callback leaves behind in the process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks.testing.report import Defect

if TYPE_CHECKING:
    from trainer_hooks.testing.bench import Bench
    from trainer_hooks.testing.checks.finding import Findings

__all__ = ["check_global_state", "check_random_numbers"]


def check_global_state(bench: Bench) -> Findings:
    """Find what of the process is not what it was before the callback was made."""
    for change in bench.trial.changes:
        yield Defect(
            f"the {change.what} is as before once the trainer is closed",
            str(change),
            "Put it back in teardown or on_close, or do without changing it.",
        )


def check_random_numbers(bench: Bench) -> Findings:
    """Find global random numbers that the callback drew or seeded."""
    for name in bench.trial.consumed:
        yield Defect(
            f"the global random numbers of {name} go on as without the callback",
            f"after a fit, validate, test and predict, the state of {name}'s generator is another",
            "Draw from a generator of your own: random.Random(seed), numpy.random.default_rng(seed)"
            " or torch.Generator().manual_seed(seed); and keep its state in state_dict.",
        )
