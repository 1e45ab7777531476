"""Run the table of checks over a callback: with a report, or with an error that lists defects."""

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
from trainer_hooks.errors import CallbackError, OptionError, TrainerHooksWarning, nearest
from trainer_hooks.runtime import rng
from trainer_hooks.testing import world
from trainer_hooks.testing.bench import Bench
from trainer_hooks.testing.checks import CHECKS, Check, Note
from trainer_hooks.testing.checks.finding import raised
from trainer_hooks.testing.report import ContractError, ContractReport, ContractResult
from trainer_hooks.testing.tiny import TinyModule

if TYPE_CHECKING:
    from trainer_hooks.module import Module

__all__ = ["check_callback", "examine_callback"]

Factory = Callable[[], object]


def check_callback(
    factory: Factory | Sequence[Factory],
    *,
    module: Callable[[], Module] = TinyModule,
    trainer_options: Mapping[str, Any] | None = None,
    may_differ: Iterable[str] = (),
    skip: Iterable[str] = (),
    everywhere: bool = False,
) -> ContractReport:
    """Make sure that a callback keeps the contract of callbacks.

    Everything runs on the CPU, in a temporary folder, in a few seconds, and prints nothing. A check
    that cannot tell more than another's defect is not run.

    Args:
        factory: makes a new callback each time it is called, or a list of them, as the entry point
            of a plugin does; a class without arguments will do. Or several factories. The working
            directory is the temporary one: give paths of files that are read in full.
        module: makes the module to train, with its loaders, where TinyModule does not log or have
            what the callback needs.
        trainer_options: options of every trainer, where the callback needs them.
        may_differ: keys of the state that may be another after a resume than without: times,
            numbers of runs.
        skip: names of checks that the callback is meant to break.
        everywhere: whether to run it in the trainers of other frameworks, too: of those that are
            installed, with hooks that they lack, what is raised, and whether its state comes back.

    Returns:
        The report; print it to see what was checked, and what the callback costs.

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
    """Return what all checks find of a callback. The arguments are `check_callback`'s.

    Raises:
        CallbackError: the factory is a callback, or cannot be called.
        OptionError: there is no check of a name in `skip`.
    """
    checks = CHECKS
    if everywhere:
        from trainer_hooks.testing.checks.everywhere import EVERYWHERE

        checks = (*CHECKS, *EVERYWHERE)
    left_out = _known(skip, checks)
    results: list[ContractResult] = []
    for each in _callables(factory):
        position, count = 0, 1
        while position < count:
            with (
                _quiet(),
                tempfile.TemporaryDirectory(prefix="callback-contract-") as folder,
                contextlib.chdir(folder),
            ):
                # resolved, for a callback that compares its paths with the working directory's
                bench = Bench(
                    each,
                    module,
                    dict(trainer_options or {}),
                    frozenset(may_differ),
                    Path(folder).resolve(),
                    position,
                )
                results += _examine(bench, checks, left_out)
            position, count = position + 1, bench.count
    return ContractReport(tuple(results))


def _examine(
    bench: Bench, checks: Sequence[Check], left_out: frozenset[str]
) -> list[ContractResult]:
    """Return the results of one callback; each check finds the process as the first one did."""
    with world.restored():
        subject = bench.subject
    results: dict[str, ContractResult] = {}
    for check in checks:
        missing = [
            name for name in check.needs if not results[name].is_passed and name not in left_out
        ]
        reason = check.hindrance()
        if check.name in left_out:
            reason = "left out, as asked"
        elif missing:
            reason = f"it needs {', '.join(missing)}"
        if reason:
            results[check.name] = ContractResult(subject, check.name, check.rule, not_run=reason)
        else:
            results[check.name] = _run(check, bench, subject)
    return list(results.values())


def _run(check: Check, bench: Bench, subject: str) -> ContractResult:
    defects, notes = [], []
    try:
        with world.restored():
            for finding in check.run(bench):
                if isinstance(finding, Note):
                    notes.append(finding.text)
                else:
                    defects.append(finding)
    except Exception as error:  # noqa: BLE001 - a callback may raise anything anywhere; reported
        defects.append(raised(error, f"while it was checked that {check.rule}"))
    return ContractResult(subject, check.name, check.rule, tuple(defects), note="; ".join(notes))


def _callables(factory: object) -> list[Factory]:
    """Return the factories one by one.

    Raises:
        CallbackError: something else was given.
    """
    given: list[Any] = list(factory) if isinstance(factory, list | tuple) else [factory]
    for each in given:
        if isinstance(each, Callback):
            name = type(each).__qualname__
            raise CallbackError(
                f"callback {each!r} given to the test kit: it needs many of them, each new. Pass a "
                f"factory: check_callback(lambda: {name}(...))."
            )
        if not callable(each):
            raise CallbackError(
                f"factory {each!r} of type {type(each).__qualname__} given to the test kit: it "
                "must be callable without arguments. Pass check_callback(lambda: MyCallback(...))."
            )
    if not given:
        raise CallbackError("factories [] given to the test kit: there is nothing to check.")
    return given


def _known(skip: Iterable[str], checks: Sequence[Check]) -> frozenset[str]:
    names = {skip} if isinstance(skip, str) else set(skip)
    known = [check.name for check in checks]
    for name in sorted(names - set(known)):
        raise OptionError(
            f"check {name!r} in skip: there is no check of that name.{nearest(name, known)} "
            f"The checks are {', '.join(known)}."
        )
    return frozenset(names)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep from the user what the runs print, and draw of the random numbers.

    So are the framework's warnings kept, of what the checks do on purpose.
    """
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        warnings.catch_warnings(),
        rng.isolated(),
        contextlib.ExitStack() as afterwards,
    ):
        afterwards.callback(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(1)  # several wait for each other longer than such small sums take
        warnings.simplefilter("ignore", TrainerHooksWarning)
        yield
