"""What each callback costs a training step, beside Lightning's of the same name.

Each callback is trained with and without, in turns in one process; the processes of the two
frameworks take turns too. The figure is the median over the rounds of the difference of the
fastest epochs in µs a step, which includes a callback's share of what it does once an epoch of 1000
steps. `--write` puts the figures where the callbacks' pages are made from.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import sys
from pathlib import Path

from _callback_cases import CASES
from _harness import ChildError, interleave, run_child, table

_WORKER = Path(__file__).with_name("_callback_worker.py")
_COSTS = Path(__file__).resolve().parent.parent / "docs" / "callback_costs.json"
_NOISE_US = 2.0
"""What two figures may differ by without meaning anything."""


def measure(names: list[str], rounds: int) -> dict[str, dict[str, float]]:
    """Return for each callback its cost in µs a step, and Lightning's where that has it."""
    frameworks = {"trainer_hooks": names}
    theirs = [name for name in names if CASES[name].theirs]
    if theirs and importlib.util.find_spec("lightning") is not None:
        frameworks["lightning"] = theirs
    seen: dict[str, dict[str, list[float]]] = {name: {} for name in names}
    for number, framework in interleave(list(frameworks), rounds):
        command = [sys.executable, str(_WORKER), framework, ",".join(frameworks[framework])]
        found = run_child(command, hash_seed=number, timeout_s=1800)
        for name, spans in found.items():
            seen[name].setdefault(framework, []).append(spans["with"] - spans["without"])
    return {
        name: {
            {"trainer_hooks": "us", "lightning": "lightning_us"}[framework]: round(
                statistics.median(costs), 2
            )
            for framework, costs in by_framework.items()
        }
        for name, by_framework in seen.items()
    }


def main() -> int:
    """Measure, print, and with --check tell by the exit status whether one of ours is slower."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="callbacks; all unless given")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="write docs/callback_costs.json")
    parser.add_argument("--check", action="store_true", help="exit 1 if one is slower than theirs")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - set(CASES))
    if unknown:
        parser.error(f"no such case: {', '.join(unknown)}; there are {', '.join(CASES)}")
    try:
        costs = measure(arguments.names or list(CASES), arguments.rounds)
    except ChildError as error:
        print(error, file=sys.stderr)
        return 2
    rows = []
    slower = []
    for name, cost in costs.items():
        theirs = cost.get("lightning_us")
        rows.append([name, f"{cost['us']:.1f}", "" if theirs is None else f"{theirs:.1f}"])
        if theirs is not None and cost["us"] > theirs + _NOISE_US:
            slower.append(name)
    print(table(["callback", "µs a step", "Lightning"], rows))
    if slower:
        print(f"\nslower than Lightning's: {', '.join(slower)}")
    if arguments.write:
        known = json.loads(_COSTS.read_text(encoding="utf-8")) if _COSTS.exists() else {}
        merged = dict(sorted({**known, **costs}.items()))
        _COSTS.write_text(json.dumps(merged, indent=2) + "\n", encoding="utf-8")
    return int(arguments.check and bool(slower))


if __name__ == "__main__":
    sys.exit(main())
