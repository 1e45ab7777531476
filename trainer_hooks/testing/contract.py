"""Check a callback against the contract of callbacks: the table of checks and their runner."""

from __future__ import annotations

import contextlib
import io
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks.callback import Callback
from trainer_hooks.errors import CallbackError, OptionError, TrainerHooksWarning, did_you_mean
from trainer_hooks.runtime import rng
from trainer_hooks.testing import contract_checks as checks
from trainer_hooks.testing.contract_report import (
    Check,
    CheckNote,
    ContractError,
    ContractReport,
    ContractResult,
    defect_from_error,
)
from trainer_hooks.testing.harness import CallbackHarness
from trainer_hooks.testing.process_state import restored_process_state
from trainer_hooks.testing.resume_check import check_resumes
from trainer_hooks.testing.tiny_module import TinyModule

if TYPE_CHECKING:
    from trainer_hooks.module.module import Module

Factory = Callable[[], object]

_MADE = ("construction",)
_CALLABLE = (*_MADE, "hook_signatures")
_RUNS = (*_CALLABLE, "first_fit")

CHECKS: tuple[Check, ...] = (
    Check("construction", "the factory makes a new callback each time", checks.check_construction),
    Check("hook_names", "every method named on_... is a hook", checks.check_hook_names, _MADE),
    Check(
        "hook_signatures", "every hook can take what it is given", checks.check_hook_signatures,
        _MADE,
    ),
    Check("first_fit", "a fit raises nothing", checks.check_first_fit, _CALLABLE),
    Check(
        "global_state", "the process is as it was once the trainer is closed",
        checks.check_global_state, _MADE,
    ),
    Check(
        "random_numbers", "global random numbers are left alone", checks.check_random_numbers,
        _RUNS,
    ),
    Check("shared_state", "two callbacks share no state", checks.check_shared_state, _RUNS),
    Check(
        "orders", "fit, validate, test and predict raise nothing, in any order",
        checks.check_orders, _RUNS,
    ),
    Check("closing", "teardown and close can be called twice", checks.check_closing, _RUNS),
    Check("refits", "a callback can be used again", checks.check_refits, (*_RUNS, "closing")),
    Check(
        "failing_run", "an error of others is not covered up", checks.check_failing_run, _RUNS
    ),
    Check(
        "state_key", "the state_key is the same in every run", checks.check_state_key, _MADE
    ),
    Check(
        "state_round_trip", "the state comes back from a file as it was saved",
        checks.check_state_round_trip, (*_RUNS, "state_key"),
    ),
    Check(
        "neighbours", "what belongs to others is left alone", checks.check_neighbours,
        (*_RUNS, "state_round_trip"),
    ),
    Check(
        "resumes", "a run that was cut anywhere and resumed is the run that was not",
        check_resumes, (*_RUNS, "state_round_trip", "shared_state"),
    ),
    Check("costs", "what its hooks cost", checks.measure_costs, _RUNS),
)  # fmt: skip
"""The checks in the order in which they run."""


def check_callback(
    factory: Factory | Sequence[Factory],
    *,
    module: Callable[[], Module] = TinyModule,
    trainer_options: Mapping[str, Any] | None = None,
    may_differ: Iterable[str] = (),
    skip: Iterable[str] = (),
    everywhere: bool = False,
) -> ContractReport:
    """Check that a callback keeps the contract of callbacks; raise an error that lists all defects.

    Everything runs on the CPU, in a temporary folder, in a few seconds, and prints nothing. A check
    that could only report the defect of an earlier check again is not run.

    Args:
        factory: makes a new callback each time it is called, or a list of them, as the entry point
            of a plugin does; a class without arguments will do. Or several factories. The working
            directory is the temporary one: give paths of files that are read in full.
        module: makes the module to train, with its loaders, where TinyModule does not log or have
            what the callback needs.
        trainer_options: options of every trainer, where the callback needs them.
        may_differ: keys of the state that may differ after a resume, such as times and numbers of
            runs, and hooks whose moments may, such as `on_checkpoint_saved` of a file that is
            written in the background.
        skip: names of checks that the callback is meant to break.
        everywhere: whether to run it in the trainers of other frameworks, too, those that are
            installed: it must use only hooks that they have, raise nothing, and get its state back.

    Returns:
        The report; print it to see which checks ran and what the callback costs.

    Raises:
        ContractError: the callback has defects; all of them are listed.
        CallbackError: the factory is a callback, or cannot be called.
        OptionError: there is no check of a name in `skip`.

    Example::

        check_callback(lambda: MyCallback("val_loss"), may_differ=["seconds"])
    """
    report = examine_callback(
        factory,
        module=module,
        trainer_options=trainer_options,
        may_differ=may_differ,
        skip=skip,
        everywhere=everywhere,
    )
    if not report.is_passed:
        raise ContractError(report)
    return report


def examine_callback(
    factory: Factory | Sequence[Factory],
    *,
    module: Callable[[], Module] = TinyModule,
    trainer_options: Mapping[str, Any] | None = None,
    may_differ: Iterable[str] = (),
    skip: Iterable[str] = (),
    everywhere: bool = False,
) -> ContractReport:
    """Run the checks on a callback and return the report. The arguments are `check_callback`'s.

    Raises:
        CallbackError: the factory is a callback, or cannot be called.
        OptionError: there is no check of a name in `skip`.
    """
    chosen = CHECKS
    if everywhere:
        # loads the adapters of all frameworks
        from trainer_hooks.testing.foreign_trainers import FOREIGN_CHECKS

        chosen = (*CHECKS, *FOREIGN_CHECKS)
    skipped = _skipped_names(skip, chosen)
    results: list[ContractResult] = []
    for one_factory in _factories(factory):
        # how many callbacks a factory makes is known once it was called
        position, count = 0, 1
        while position < count:
            # a folder for each callback: what one leaves behind must not be found by the next
            with (
                _quiet(),
                tempfile.TemporaryDirectory(prefix="callback-contract-") as folder,
                contextlib.chdir(folder),
            ):
                harness = CallbackHarness(
                    one_factory,
                    module,
                    dict(trainer_options or {}),
                    frozenset(may_differ),
                    # resolved, for a callback that compares its paths with the working directory
                    Path(folder).resolve(),
                    position,
                )
                results += _run_checks(harness, chosen, skipped)
            position, count = position + 1, harness.count
    return ContractReport(tuple(results))


def _run_checks(
    harness: CallbackHarness, chosen: Sequence[Check], skipped: frozenset[str]
) -> list[ContractResult]:
    """Run the checks on one callback, each with the process state that the first one had."""
    # this makes the first run, which changes the process as a callback's first run may
    with restored_process_state():
        subject = harness.subject
    results: dict[str, ContractResult] = {}
    for check in chosen:
        # a check that a user skips hinders none: its defect is meant to be there
        missing = [
            name for name in check.needs if not results[name].is_passed and name not in skipped
        ]
        reason = check.hindrance()
        if check.name in skipped:
            reason = "left out, as asked"
        elif missing:
            reason = f"it needs {', '.join(missing)}"
        if reason:
            results[check.name] = ContractResult(subject, check.name, check.rule, not_run=reason)
        else:
            results[check.name] = _run_check(check, harness, subject)
    return list(results.values())


def _run_check(check: Check, harness: CallbackHarness, subject: str) -> ContractResult:
    # defects that a check has yielded before an error stay
    defects, notes = [], []
    try:
        with restored_process_state():
            for finding in check.run(harness):
                if isinstance(finding, CheckNote):
                    notes.append(finding.text)
                else:
                    defects.append(finding)
    except Exception as error:  # noqa: BLE001 - a callback may raise anything anywhere; reported
        defects.append(defect_from_error(error, f"while it was checked that {check.rule}"))
    return ContractResult(subject, check.name, check.rule, tuple(defects), note="; ".join(notes))


def _factories(factory: object) -> list[Factory]:
    """Return the factories as a list.

    Raises:
        CallbackError: one of them is a callback or cannot be called, or the list is empty.
    """
    factories: list[Any] = list(factory) if isinstance(factory, list | tuple) else [factory]
    for item in factories:
        if isinstance(item, Callback):
            name = type(item).__qualname__
            raise CallbackError(
                f"callback {item!r} given to the test kit: it needs many of them, each new. Pass a "
                f"factory: check_callback(lambda: {name}(...))."
            )
        if not callable(item):
            raise CallbackError(
                f"factory {item!r} of type {type(item).__qualname__} given to the test kit: it "
                "must be callable without arguments. Pass check_callback(lambda: MyCallback(...))."
            )
    if not factories:
        raise CallbackError("factories [] given to the test kit: there is nothing to check.")
    return factories


def _skipped_names(skip: Iterable[str], chosen: Sequence[Check]) -> frozenset[str]:
    """Return the names in `skip`; a single name may stand alone.

    Raises:
        OptionError: there is no check of one of the names.
    """
    # a string is iterable: its letters would be taken for names
    names = {skip} if isinstance(skip, str) else set(skip)
    available = [check.name for check in chosen]
    for name in sorted(names - set(available)):
        raise OptionError(
            f"check {name!r} in skip: there is no check of that name."
            f"{did_you_mean(name, available)} The checks are {', '.join(available)}."
        )
    return frozenset(names)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hide the runs: their output, the framework's warnings, and the random numbers they draw."""
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        warnings.catch_warnings(),
        rng.isolated(),
        contextlib.ExitStack() as afterwards,
    ):
        # the present number is read here, before it changes; it is set again at the end
        afterwards.callback(torch.set_num_threads, torch.get_num_threads())
        # for so small tensors, threads wait for each other longer than they compute
        torch.set_num_threads(1)
        # the checks do on purpose what the framework warns of
        warnings.simplefilter("ignore", TrainerHooksWarning)
        yield
