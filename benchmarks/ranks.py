"""What one rank of many asks of the others: collectives and bytes, for 2, 64 and 1,024 ranks.

    python benchmarks/ranks.py [--worlds 2,64,1024]

One process stands for rank 0, and another for the last rank, on torch's fake process group. The
module has 4,160 parameters and logs 10 names with `sync_dist=True`. Nothing is timed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from _harness import run_child, table

_WORKER = Path(__file__).with_name("_ranks_worker.py")
_STEPS_COUNTED = 7
PHASES = {
    "start": ("the start of a fit", 1),
    "step": ("a step", _STEPS_COUNTED),
    "metrics of an epoch": ("the end of an epoch, 10 names", 2),
    "save": ("a checkpoint", 1),
}
"""What each phase is called, and how many times it came."""


def count(rank: int, world: int) -> dict[str, dict[str, int]]:
    """Return what a rank asks of the others, by phase."""
    found: dict[str, Any] = run_child([sys.executable, str(_WORKER), str(rank), str(world)])
    return found


def rows(rank: int, world: int) -> list[list[str]]:
    """Return a row of the table for each phase."""
    seen, told = count(rank, world), []
    for phase, (name, times) in PHASES.items():
        found = seen.get(phase, {})
        calls = sum(found.get(kind, 0) for kind in ("gradients", "tensors", "objects"))
        numbers = (calls, found.get("gives", 0), found.get("gets", 0), found.get("requests", 0))
        told.append([str(world), str(rank), name, *(f"{n / times:,.0f}" for n in numbers)])
    return told


def main(argv: list[str] | None = None) -> int:
    """Count and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--worlds", default="2,64,1024", help="numbers of ranks")
    worlds = [int(part) for part in parser.parse_args(argv).worlds.split(",")]
    lines = [row for world in worlds for rank in (0, world - 1) for row in rows(rank, world)]
    header = ["ranks", "rank", "at", "collectives", "bytes given", "bytes held", "store requests"]
    print("\n" + table(header, lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
