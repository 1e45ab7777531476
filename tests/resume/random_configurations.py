"""Draw configurations at random, cut their runs and resume them: all must stay the same, exactly.

`python tests/resume/random_configurations.py --seeds 0:5000 --jobs 2` examines those seeds, prints
each failure with the smallest configuration that still fails, and a summary at its end.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import sys
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from random_known import allowed
from random_runs import Result, examine
from random_space import SPACE, Options, fitting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


SEEDS_OF_A_POOL = 250
"""Then fresh processes are begun, so that what runs leave behind does not pile up."""


def draw(seed: int) -> Options:
    """Return the configuration of a seed: each option is the simplest in half of them."""
    chosen = random.Random(seed)
    return allowed(
        {
            name: values[0] if chosen.random() < 0.5 else chosen.choice(values)
            for name, values in SPACE.items()
        }
    )


def changed(options: Options) -> Options:
    """Return what of a configuration is not the simplest."""
    return {name: value for name, value in options.items() if value != SPACE[name][0]}


def shrink(options: Options, fails: Callable[[Options], bool]) -> Options:
    """Make one option after another as simple as it can be, as long as it still fails."""
    before: Options = {}
    while before != options:
        before = options
        for name in changed(options):
            for value in SPACE[name][: SPACE[name].index(options[name])]:
                simpler = fitting({**options, name: value})
                if simpler != options and fails(simpler):
                    options = simpler
                    break
    return options


def check(seed: int) -> tuple[int, Result, Options]:
    """Examine the configuration of a seed; one that fails is shrunk."""
    torch.set_num_threads(1)
    options = draw(seed)
    with tempfile.TemporaryDirectory(prefix="random-configurations-") as folder:

        def result(candidate: Options) -> Result:
            return examine(candidate, Path(folder), seed)

        first = result(options)
        if first.status != "differs":
            return seed, first, options
        options = shrink(options, lambda candidate: result(candidate).status == "differs")
        return seed, result(options), options


def told(seed: int, result: Result, options: Options) -> str:
    """Return a failure in words."""
    lines = [f"seed {seed}: {changed(options)}", *(f"    {line}" for line in result.details)]
    return "\n".join(lines)


def failures(seeds: Iterable[int]) -> list[str]:
    """Examine seeds in this process; return what failed, in words."""
    examined = map(check, seeds)
    return [told(*found) for found in examined if found[1].status == "differs"]


def _begin() -> None:
    """Keep what the runs say of signals from the terminal, and the disk from being waited for.

    Loaders fork their workers, as they do by default; a process that was spawned would spawn them.
    """
    multiprocessing.set_start_method("fork", force=True)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    os.fsync = lambda descriptor: None  # type: ignore[assignment]


def main(arguments: list[str]) -> int:
    """Examine a range of seeds in several processes; return how many failed, 1 at most."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0:100", help="first:last, without the last")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    given = parser.parse_args(arguments)
    first, last = map(int, given.seeds.split(":"))
    statuses: Counter[str] = Counter()
    for start in range(first, last, SEEDS_OF_A_POOL):
        part = range(start, min(start + SEEDS_OF_A_POOL, last))
        # spawned, since threads of torch do not survive a fork
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(given.jobs, context, _begin) as pool:
            for found in pool.map(check, part):
                statuses[found[1].status] += 1
                if found[1].status == "differs":
                    print(told(*found), flush=True)
        print(f"{first} to {part.stop}: {_counted(statuses)}", flush=True)
    print(f"{last - first} configurations: {_counted(statuses)}")
    return 1 if statuses["differs"] else 0


def _counted(statuses: Counter[str]) -> str:
    return ", ".join(f"{count} {status}" for status, count in sorted(statuses.items()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
