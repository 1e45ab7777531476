"""What a trainer costs per step, over the same loop written by hand.

Every contestant trains the same MLP on the same batches in a fresh process; the runs are
interleaved, and the data itself notes the clock at the start of each pass over it. An epoch's
figure is the time from its first batch to the next epoch's first, by the number of steps, so work
at the ends of epochs is in it, and setup and imports are not.

The statistic: of one process, the minimum over its epochs, because whatever else runs on the
machine can only add time; per round, the ratio of that to the hand-written loop's minimum of the
same round, because the machine's speed drifts over minutes; over the rounds, the median, because
one process may be unlucky in its memory layout for as long as it lives. `cpu` is the same ratio of
the process's CPU time: where it and `ratio` are far apart, something waited, or the machine was
busy. `best/best` is the fastest epoch of all rounds by the hand-written loop's fastest.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import statistics
import sys
from pathlib import Path
from typing import Any, NamedTuple

from _harness import ChildError, interleave, run_child, table
from contestants import BASELINE, CONTESTANTS, OURS, Contestant

STEPS_PER_EPOCH = 1000  # as in _workload.py, which this process does not import: it needs no torch
TARGETS = {"bare": 1.03, "usual": 1.15, "rich": 1.15}
STEADY = 1.05
"""How far the hand-written loop's own rounds may lie apart for anything to be concluded."""
_WORKER = Path(__file__).with_name("_worker.py")


class Figures(NamedTuple):
    """One contestant's result: µs per step, and its ratios to the hand-written loop."""

    us: float
    ratio: float
    extra_us: float
    best_ratio: float
    cpu_ratio: float

    def cells(self) -> list[str]:
        """Return the figures as the table shows them."""
        ratios = (f"{self.best_ratio:.3f}", f"{self.cpu_ratio:.3f}")
        return [f"{self.us:.1f}", f"{self.ratio:.3f}", f"{self.extra_us:+.1f}", *ratios]


def chosen(arguments: argparse.Namespace) -> list[Contestant]:
    """Return the contestants to run, with the baseline of each case; say which are skipped."""
    found = []
    for contestant in CONTESTANTS:
        wanted = not arguments.only or contestant.name in arguments.only
        if contestant.case not in arguments.case or not (wanted or contestant.name == BASELINE):
            continue
        own = contestant.package == OURS  # measured from this checkout, installed or not
        if not own and importlib.util.find_spec(contestant.package) is None:
            print(f"{contestant}: skipped, {contestant.package} is not installed")
        else:
            found.append(contestant)
    return found


def measure(
    contestants: list[Contestant], epochs: int, rounds: int
) -> dict[Contestant, list[dict[str, Any]]]:
    """Run everything; a contestant that fails is reported and left out from then on."""
    results: dict[Contestant, list[dict[str, Any]]] = {c: [] for c in contestants}
    for number, contestant in interleave(contestants, rounds):
        if contestant not in results:
            continue
        command = [sys.executable, str(_WORKER), contestant.target, str(epochs)]
        try:
            results[contestant].append(run_child(command, hash_seed=number))
        except ChildError as error:
            print(f"\n{contestant}: failed, left out: {error}")
            del results[contestant]
    return results


def figures(own: list[dict[str, Any]], baseline: list[dict[str, Any]]) -> Figures:
    """Return a contestant's figures from the results of its rounds and the baseline's."""
    wall, cpu = ([min(result[key]) for result in own] for key in ("wall_us", "cpu_us"))
    wall_0, cpu_0 = ([min(result[key]) for result in baseline] for key in ("wall_us", "cpu_us"))
    pairs = list(zip(wall, wall_0, strict=True))
    return Figures(
        us=statistics.median(wall),
        ratio=statistics.median(a / b for a, b in pairs),
        extra_us=statistics.median(a - b for a, b in pairs),
        best_ratio=min(wall) / min(wall_0),
        cpu_ratio=statistics.median(a / b for a, b in zip(cpu, cpu_0, strict=True)),
    )


def version(distribution: str) -> str:
    """Return an installed distribution's version, or that this checkout is what was measured."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "checkout"


def report(results: dict[Contestant, list[dict[str, Any]]]) -> dict[str, dict[str, Figures]]:
    """Print a table for each case and return the figures: case -> name -> figures."""
    cases: dict[str, dict[str, Figures]] = {}
    for case in TARGETS:
        runs = {c: result for c, result in results.items() if c.case == case}
        baseline = next((r for c, r in runs.items() if c.name == BASELINE), None)
        if not baseline:
            continue
        found = {c: figures(result, baseline) for c, result in runs.items()}
        rows = [[c.name, *f.cells(), version(c.distribution)] for c, f in found.items()]
        print(f"\n{case} (target for {OURS}: {TARGETS[case]:.2f})")
        print(table(["", "µs/step", "ratio", "extra µs", "best/best", "cpu", "version"], rows))
        _say_who_trained_otherwise(runs, baseline)
        cases[case] = {c.name: f for c, f in found.items()}
    return cases


def _say_who_trained_otherwise(
    runs: dict[Contestant, list[dict[str, Any]]], baseline: list[dict[str, Any]]
) -> None:
    """Name the contestants whose trained weights are not those of the hand-written loop."""
    wanted = baseline[0]["weights"]
    for contestant, results in runs.items():
        got = {result["weights"] for result in results} - {wanted}
        if got:
            print(f"{contestant}: trained other weights: {sorted(got)}, not {wanted}")


def unsteady(results: dict[Contestant, list[dict[str, Any]]]) -> list[str]:
    """Return a line for each case whose hand-written loop was not equally fast in all rounds."""
    lines = []
    for contestant, runs in results.items():
        if contestant.name == BASELINE and runs:
            least, *_, most = sorted([min(run["wall_us"]) for run in runs] * 2)
            if most > least * STEADY:
                lines.append(
                    f"{contestant.case}: the machine was busy. {BASELINE} itself took from "
                    f"{least:.1f} to {most:.1f} µs, so the ratios decide nothing: run it again"
                )
    return lines


def missed_targets(cases: dict[str, dict[str, Figures]], wanted: list[str]) -> list[str]:
    """Return a line for each target that our trainer missed, or that was not measured."""
    lines = []
    for case in wanted:
        mine = cases.get(case, {}).get(OURS)
        if mine is None:
            lines.append(f"{case}: {OURS} was not measured")
        elif mine.ratio > TARGETS[case]:
            lines.append(f"{case}: {mine.ratio:.3f} is over {TARGETS[case]:.2f}")
    return lines


def main(argv: list[str] | None = None) -> int:
    """Measure, print, and return 1 only if `--check` cannot say that the targets are met."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    names = ", ".join(dict.fromkeys(c.name for c in CONTESTANTS))
    parser.add_argument("--steps", type=int, default=4000, help="measured steps per process")
    parser.add_argument("--rounds", type=int, default=5, help="processes per contestant")
    parser.add_argument("--only", type=lambda s: s.split(","), help=f"some of: {names}")
    parser.add_argument("--case", type=lambda s: s.split(","), default=list(TARGETS))
    parser.add_argument("--json", type=Path, help="write the figures and every epoch's times here")
    parser.add_argument("--check", action="store_true", help="exit 1 unless all targets are met")
    arguments = parser.parse_args(argv)
    epochs = max(1, arguments.steps // STEPS_PER_EPOCH)
    results = measure(chosen(arguments), epochs, arguments.rounds)
    cases = report(results)
    if arguments.json:
        raw = {str(contestant): result for contestant, result in results.items()}
        summary = {case: {n: f._asdict() for n, f in rows.items()} for case, rows in cases.items()}
        arguments.json.write_text(json.dumps({"figures": summary, "runs": raw}, indent=1))
    doubts = unsteady(results)
    missed = [*missed_targets(cases, arguments.case), *doubts]
    if arguments.check:
        print("\n" + ("\n".join(missed) if missed else "Targets met."))
    elif doubts:
        print("\n" + "\n".join(doubts))
    return int(arguments.check and bool(missed))


if __name__ == "__main__":
    sys.exit(main())
