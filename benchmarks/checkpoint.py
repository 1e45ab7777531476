"""What saving and resuming costs, over torch's own functions on the same state.

A model and its Adam state, 1 GB by default, belong to a training that has just ended its only
step. Every contestant does one thing in a fresh process, several times, in turns with the
baseline; the processes are interleaved. Of a process the fastest repeat of each counts, because
whatever else the machine does can only add time; then their ratio, and over the rounds the median.
`best/best` is the fastest repeat of all rounds by the fastest of the baseline in these processes.

`peak` is how much more memory a process took while it saved than before, by the size of the state.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import sys
from pathlib import Path
from typing import Any, NamedTuple

from _harness import ChildError, interleave, run_child, table

_WORKER = Path(__file__).with_name("_checkpoint_worker.py")


class Contestant(NamedTuple):
    """One way to do a task; the first of each task is its baseline."""

    task: str
    name: str
    package: str = ""
    target: float | None = None

    def __str__(self) -> str:
        return f"{self.task}, {self.name}"


CONTESTANTS = [
    Contestant("save", "torch.save and fsync"),
    Contestant("save", "trainer_hooks", target=1.15),
    Contestant("save", "lightning", "lightning"),
    Contestant("save", "ignite", "ignite"),
    Contestant("hold", "clone of the state"),
    Contestant("hold", "trainer_hooks, later saves", target=1.3),
    Contestant("hold", "trainer_hooks, first save", target=1.3),
    Contestant("hold", "lightning AsyncCheckpointIO", "lightning"),
    Contestant("resume", "torch.load and load_state_dict"),
    Contestant("resume", "trainer_hooks", target=1.2),
    Contestant("resume", "lightning", "lightning"),
    Contestant("resume", "ignite", "ignite"),
]
TASKS = {
    "save": "A save that blocks",
    "hold": "How long a save in the background holds the loop",
    "resume": "Reading a checkpoint and putting it back",
}
PEAK = 1.1
"""What our blocking save may take in memory, by the size of the state."""


def chosen(arguments: argparse.Namespace) -> list[Contestant]:
    """Return the contestants to run; say which are skipped."""
    found = []
    for contestant in CONTESTANTS:
        if contestant.task not in arguments.task:
            continue
        if contestant.package and importlib.util.find_spec(contestant.package) is None:
            print(f"{contestant}: skipped, {contestant.package} is not installed")
        else:
            found.append(contestant)
    return found


def measure(
    contestants: list[Contestant], arguments: argparse.Namespace
) -> dict[Contestant, list[dict[str, Any]]]:
    """Run everything; a contestant that fails is reported and left out from then on."""
    results: dict[Contestant, list[dict[str, Any]]] = {c: [] for c in contestants}
    for number, contestant in interleave(contestants, arguments.rounds):
        if contestant not in results:
            continue
        options = (contestant.task, contestant.name, str(arguments.size), str(arguments.repeats))
        command = [sys.executable, str(_WORKER), *options, str(arguments.dir or "")]
        try:
            results[contestant].append(run_child(command, hash_seed=number))
        except ChildError as error:
            print(f"\n{contestant}: failed, left out: {error}")
            del results[contestant]
    return results


def report(results: dict[Contestant, list[dict[str, Any]]]) -> list[str]:
    """Print a table for each task and return a line for each target that was missed."""
    missed = []
    for task, title in TASKS.items():
        runs = {c: found for c, found in results.items() if c.task == task and found}
        if not runs:
            continue
        rows = []
        for contestant, found in runs.items():
            own = [min(run["seconds"]) for run in found]
            baseline = [min(run["baseline_seconds"]) for run in found]
            ratio = statistics.median(a / b for a, b in zip(own, baseline, strict=True))
            best = min(own) / min(baseline)
            peak = statistics.median(run["peak"] for run in found)
            goal = "" if contestant.target is None else f"{contestant.target:.2f}"
            figures = (statistics.median(own), ratio, best)
            seconds, *ratios = (f"{figure:.3f}" for figure in figures)
            rows.append([contestant.name, seconds, *ratios, goal, f"{peak:.2f}"])
            if contestant.target is not None and min(ratio, best) > contestant.target:
                missed.append(f"{contestant}: {ratio:.2f} ({best:.2f}) is over {goal}")
            if task == "save" and contestant.target is not None and peak > PEAK:
                missed.append(f"{contestant}: a peak of {peak:.2f} is over {PEAK}")
        print(f"\n{title}")
        print(table(["", "seconds", "ratio", "best/best", "target", "peak"], rows))
    return missed


def main(argv: list[str] | None = None) -> int:
    """Measure, print, and return 1 only if `--check` is given and a target is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--size", type=float, default=1.0, help="GB of the state")
    parser.add_argument("--rounds", type=int, default=5, help="processes per contestant")
    parser.add_argument("--repeats", type=int, default=3, help="times in a process")
    parser.add_argument("--dir", type=Path, help="the folder to write to; a temporary one if none")
    parser.add_argument("--task", type=lambda s: s.split(","), default=list(TASKS))
    parser.add_argument("--json", type=Path, help="write what each process measured here")
    parser.add_argument("--check", action="store_true", help="exit 1 unless all targets are met")
    arguments = parser.parse_args(argv)
    contestants = chosen(arguments)
    results = measure(contestants, arguments)
    failed = [c for c in contestants if c not in results and c.target is not None]
    missed = [f"{contestant}: failed" for contestant in failed] + report(results)
    if arguments.json:
        raw = {str(contestant): runs for contestant, runs in results.items()}
        arguments.json.write_text(json.dumps(raw, indent=1))
    print("\n" + ("\n".join(missed) if missed else "Targets met."))
    return int(arguments.check and bool(missed))


if __name__ == "__main__":
    sys.exit(main())
