"""Mutate every built-in callback, and count the mutants that the author's kit finds.

`python tests/testing/mutants.py --jobs 2` takes all of them and prints each that changes a run and
is not found, and the figures; `--only NAME` those of one case, `--every N` each N-th.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import os
import sys
import tempfile
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from judging import Case, changes, states_of
from mutations import Mutation, mutated, mutations

from trainer_hooks.testing import TinyModule, examine_callback
from trainer_hooks.testing.contract import CHECKS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_TABLE = Path(__file__).parents[1] / "contract" / "test_built_in_callbacks.py"
_ABOUT_STATE = {
    "construction", "hook_signatures", "first_fit", "state_key", "shared_state",
    "state_round_trip", "resumes",
}  # fmt: skip
_OTHERS = [check.name for check in CHECKS if check.name not in _ABOUT_STATE]
SAMPLED = (
    "BackboneFinetuning",
    "CheckpointSaver, batches",
    "EMAWeightAveraging",
    "EarlyStopper",
    "EarlyStopping, at once",
    "ModelCheckpoint, best and last",
    "ModelPruning, each on its own",
    "NaNGuard, skips",
    "SaveTrainingStateCallback",
    "SpikeDetection, skipping",
    "StochasticWeightAveraging",
)
"""Those of which a test takes some mutants."""


@dataclass(frozen=True)
class Verdict:
    """The verdict on a mutant.

    Attributes:
        case: the callback, as the table of the built-in ones calls it.
        mutation: the fault that it has.
        change: the change of a run that the judge saw without the kit; empty if there is none.
        found: the check that found it; empty if none did.
    """

    case: str
    mutation: str
    change: str
    found: str

    @property
    def is_missed(self) -> bool:
        return bool(self.change) and not self.found


def table() -> dict[str, tuple[Any, dict[str, Any]]]:
    """Return the built-in callbacks as they are put through the contract."""
    spec = importlib.util.spec_from_file_location("built_in_callbacks", _TABLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.CASES


def mutants_of(name: str) -> list[Mutation]:
    """Return the faults that the state of a callback of the table can have."""
    with _apart() as folder:
        return list(mutations(states_of(case_of(name), folder)))


def examine(name: str, mutation: Mutation) -> Verdict:
    """Judge a mutant, and have the kit examine it."""
    case, (factory, options) = case_of(name), table_of(name)
    faulty = Case(mutated(factory, mutation), case.make_module, case.options)
    with _apart() as folder:
        change = changes(case, faulty, folder)
    with _apart():
        report = examine_callback(faulty.make, **{**options, "skip": _skipped(options)})
    found = ", ".join(result.name for result in report.failed)
    return Verdict(name, str(mutation), change, found)


def _skipped(options: dict[str, Any]) -> list[str]:
    return [*options.get("skip", ()), *_OTHERS]


def table_of(name: str) -> tuple[Any, dict[str, Any]]:
    """Return a case of the table; the same object each time, as the judge knows it by that."""
    if not _CASES:
        _CASES.update(table())
    return _CASES[name]


_CASES: dict[str, tuple[Any, dict[str, Any]]] = {}


def case_of(name: str) -> Case:
    """Return a callback of the table, to be judged."""
    factory, options = table_of(name)
    module = options.get("module", TinyModule)
    return Case(factory, module, dict(options.get("trainer_options", {})))


@contextlib.contextmanager
def _apart() -> Iterator[Path]:
    """Work in a folder of its own, in silence, with one thread, and without waiting for disks."""
    fsync, os.fsync = os.fsync, lambda descriptor: None
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="mutants-") as folder,
            contextlib.chdir(folder),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            yield Path(folder).resolve()
    finally:
        os.fsync = fsync
        torch.set_num_threads(threads)


def examine_all(name: str, every: int = 1, first: int = 0) -> list[Verdict]:
    """Examine the mutants of one callback, or each so many of them.

    Raises:
        AssertionError: the kit finds something in the sound callback, and so in all.
    """
    with _apart():
        factory, options = table_of(name)
        report = examine_callback(factory, **{**options, "skip": _skipped(options)})
        assert report.is_passed, str(report)
    return [examine(name, mutation) for mutation in mutants_of(name)[first::every]]


def summary(verdicts: Iterable[Verdict]) -> str:
    """Return the figures, and below them the mutants that change a run and were not found."""
    every = list(verdicts)
    that_change = [verdict for verdict in every if verdict.change]
    found = [verdict for verdict in that_change if verdict.found]
    share = 100 * len(found) / len(that_change) if that_change else 100.0
    beside = sum(bool(verdict.found) and not verdict.change for verdict in every)
    lines = [f"{len(every)} mutants, of which {len(that_change)} change a run"]
    lines += [f"the kit finds {len(found)} of these, {share:.1f}%, and {beside} of the others"]
    kinds = Counter(verdict.mutation.partition(" ")[0] for verdict in that_change)
    caught = Counter(verdict.mutation.partition(" ")[0] for verdict in found)
    lines += [f"    {kind}: {caught[kind]} of {count}" for kind, count in sorted(kinds.items())]
    lines += [
        f"not found: {verdict.case}: {verdict.mutation}: {verdict.change}"
        for verdict in that_change
        if not verdict.found
    ]
    return "\n".join(lines)


def main() -> int:
    """Run from the command line; the exit code is 1 where fewer than 95% are found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", help="a case of the table; may be repeated")
    parser.add_argument("--every", type=int, default=1, help="take each so many mutants")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--all", action="store_true", help="print every verdict")
    given = parser.parse_args()
    names = given.only or list(table())
    verdicts: list[Verdict] = []
    with ProcessPoolExecutor(given.jobs, max_tasks_per_child=1) as pool:
        for some in pool.map(examine_all, names, [given.every] * len(names)):
            for verdict in some:
                if given.all or verdict.is_missed:
                    print(verdict, flush=True)
            verdicts += some
    print(summary(verdicts))
    that_change = [verdict for verdict in verdicts if verdict.change]
    return int(sum(not verdict.is_missed for verdict in that_change) < 0.95 * len(that_change))


if __name__ == "__main__":
    sys.exit(main())
