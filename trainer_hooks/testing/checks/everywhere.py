"""Checks of a callback in the trainers of other frameworks, each where that is installed."""

from __future__ import annotations

import copy
import importlib.util
import warnings
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from trainer_hooks import adapters
from trainer_hooks.errors import CallbackError
from trainer_hooks.testing import abroad
from trainer_hooks.testing.checks.finding import raised
from trainer_hooks.testing.checks.table import Check
from trainer_hooks.testing.comparing import differences, listed
from trainer_hooks.testing.report import Defect

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_hooks.callback import Callback
    from trainer_hooks.testing.bench import Bench
    from trainer_hooks.testing.checks.finding import Findings

__all__ = ["EVERYWHERE"]


def _check_in(
    bench: Bench, framework: str, convert: Callable[[Any], Any], fit: Callable[..., None]
) -> Findings:
    """Find what a callback lacks, raises or loses in another framework's trainer."""
    callback = bench.make()
    with bench.room(framework) as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of theirs
        try:
            convert(callback)
        except CallbackError as error:
            yield Defect(
                f"{framework} has every hook of the callback",
                str(error),
                "Use the hooks that both have, or leave this check out: skip=[...].",
            )
            return
        saved: list[dict[str, Any]] = []
        _note_states(callback, saved)
        try:
            fit(lambda: convert(callback), folder, lambda: None, resumes=False)
        except Exception as error:  # noqa: BLE001 - a callback may raise anything; it is reported
            yield raised(error, f"in a fit of {framework}'s Trainer")
            return
        if callback.is_stateful:
            yield from _resumed(bench, framework, convert, fit, (folder, saved))


def _resumed(
    bench: Bench,
    framework: str,
    convert: Callable[[Any], Any],
    fit: Callable[..., None],
    before: tuple[Any, list[dict[str, Any]]],
) -> Findings:
    """Find what of the state does not come back from a checkpoint of theirs."""
    folder, saved = before
    fresh, found = bench.make(), []
    try:
        fit(
            lambda: convert(fresh),
            folder,
            lambda: found.append(copy.deepcopy(fresh.state_dict())),
            resumes=True,
        )
    except Exception as error:  # noqa: BLE001 - likewise
        yield raised(error, f"in a fit of {framework}'s Trainer that goes on from a checkpoint")
        return
    names = (*bench.may_differ, *fresh.volatile_state)
    was, now = (
        {k: v for k, v in state.items() if not any(fnmatchcase(str(k), name) for name in names)}
        for state in (saved[-1] if saved else {}, found[-1] if found else {})
    )
    lost = differences(was, now, "state")
    if lost:
        yield Defect(
            f"the state comes back from {framework}'s checkpoint",
            f"saved, and when the training goes on: {listed(lost)}",
            f"{framework} may load before `setup`: reset nothing there, or where "
            "`trainer.progress.is_fresh` only.",
        )


def _note_states(callback: Callback, saved: list[dict[str, Any]]) -> None:
    """Note each state that is saved; the method of an instance is called like its class's."""
    if callback.is_stateful:
        state_dict = callback.state_dict

        def noting() -> dict[str, Any]:
            saved.append(copy.deepcopy(state := state_dict()))
            return state

        object.__setattr__(callback, "state_dict", noting)


def _in_lightning(bench: Bench) -> Findings:
    return _check_in(bench, "Lightning", adapters.to_lightning, abroad.in_lightning)


def _in_accelerated(bench: Bench) -> Findings:
    return _check_in(bench, "pytorch-accelerated", adapters.to_accelerated, abroad.in_accelerated)


def _in_composer(bench: Bench) -> Findings:
    return _check_in(bench, "Composer", adapters.to_composer, abroad.in_composer)


def _in_transformers(bench: Bench) -> Findings:
    return _check_in(bench, "transformers", adapters.to_transformers, abroad.in_transformers)


def _is_missing(*packages: str) -> bool:
    return not any(map(importlib.util.find_spec, packages))


_NEEDS = ("construction", "hook_signatures", "first_fit", "state_round_trip")

EVERYWHERE: tuple[Check, ...] = (
    Check(
        "in_lightning",
        "it runs in Lightning's Trainer, and its state comes back there",
        _in_lightning,
        _NEEDS,
        lambda: "Lightning is not installed" * _is_missing("lightning", "pytorch_lightning"),
    ),
    Check(
        "in_accelerated",
        "it runs in pytorch-accelerated's Trainer, and its state comes back there",
        _in_accelerated,
        _NEEDS,
        lambda: "pytorch-accelerated is not installed" * _is_missing("pytorch_accelerated"),
    ),
    Check(
        "in_composer",
        "it runs in Composer's Trainer, and its state comes back there",
        _in_composer,
        _NEEDS,
        lambda: "Composer is not installed" * _is_missing("composer"),
    ),
    Check(
        "in_transformers",
        "it runs in transformers' Trainer, and its state comes back there",
        _in_transformers,
        _NEEDS,
        lambda: "transformers is not installed" * _is_missing("transformers"),
    ),
)
"""Of `check_callback(..., everywhere=True)`."""
