"""Draw configurations at random, cut their runs and resume them: all must stay the same, exactly.

`python tests/resume/random_configurations.py --seeds 0:5000 --jobs 2` examines those seeds, prints
each failure with the smallest configuration that still fails, and a summary at its end.
"""

from __future__ import annotations

import argparse
import ast
import multiprocessing
import os
import random
import shlex
import sys
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from random_chains import draw_chain, examine_chain, simpler_chains, without_particulars
from random_known import allowed
from random_runs import Result, examine
from random_space import NOT_DRAWN, SPACE, Options, fitting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


CHAINS_OF = 3
"""The seeds that this number divides are chains."""

MOST_TRIES = 120
"""How many simpler configurations are tried to shrink one."""

SEEDS_OF_A_POOL = 250
"""Then fresh processes are begun, so that what runs leave behind does not pile up."""


def draw(seed: int, loop: str = "trainer", accelerator: str = "cpu") -> Options:
    """Return the configuration of a seed: each option is the simplest in half of them.

    Args:
        seed: the seed.
        loop: who goes through the batches, which is not drawn.
        accelerator: the device of all runs, which is not drawn.
    """
    chosen = random.Random(seed)
    options = {
        name: values[0] if chosen.random() < 0.5 else chosen.choice(values)
        for name, values in SPACE.items()
        if name not in NOT_DRAWN
    }
    options |= {"loop": loop, "accelerator": accelerator}
    if seed % CHAINS_OF == 0:
        options["chain"] = draw_chain(chosen)
    return allowed(options)


def changed(options: Options) -> Options:
    """Return what of a configuration is not the simplest."""
    return {name: value for name, value in options.items() if value != SPACE[name][0]}


def shrink(options: Options, fails: Callable[[Options], bool], tries: int = MOST_TRIES) -> Options:
    """Make a configuration as simple as it can be, as long as it still fails.

    Args:
        options: a configuration that fails.
        fails: whether another one fails, too.
        tries: how many others are tried at most.
    """

    def still_fails(candidate: Options) -> bool:
        nonlocal tries
        tries -= 1
        return tries >= 0 and fails(candidate)

    # first the cuts, of which each costs a process; then many options at once
    options = _make_simpler(options, "chain", still_fails)
    options = _make_simplest(options, [*changed({**options, "chain": ()})], still_fails)
    before: Options = {}
    while before != options:
        before = options
        for name in changed(options):
            options = _make_simpler(options, name, still_fails)
    return options


def _make_simpler(options: Options, name: str, fails: Callable[[Options], bool]) -> Options:
    """Make one option as simple as it can be."""
    while True:
        simpler = (candidate for candidate in _simplified(options, name) if fails(candidate))
        candidate = next(simpler, None)
        if candidate is None:
            return options
        options = candidate


def _make_simplest(options: Options, names: list[str], fails: Callable[[Options], bool]) -> Options:
    """Make options the simplest that there is: all at once, or else each half of them."""
    candidate = fitting({**options, **{name: SPACE[name][0] for name in names}})
    if candidate == options or fails(candidate):
        return candidate
    half = len(names) // 2
    if half:
        for part in (names[:half], names[half:]):
            options = _make_simplest(options, part, fails)
    return options


def _simplified(options: Options, name: str) -> list[Options]:
    """Return the configurations in which one option is simpler."""
    if options[name] == SPACE[name][0]:
        return []
    if name == "chain":
        values: Sequence[Any] = simpler_chains(options[name])
    else:
        values = SPACE[name][: SPACE[name].index(options[name])]
    found = [fitting({**options, name: value}) for value in values]
    return [candidate for candidate in found if candidate != options]


def result_of(options: Options, folder: Path, seed: int) -> Result:
    """Examine a configuration, in this process or as a chain of processes."""
    return examine_chain(options, folder) if options["chain"] else examine(options, folder, seed)


def check(seed: int, tries: int = MOST_TRIES, **not_drawn: str) -> tuple[int, Result, Options]:
    """Examine the configuration of a seed; one that fails is shrunk by so many tries."""
    torch.set_num_threads(1)
    options = draw(seed, **not_drawn)
    with tempfile.TemporaryDirectory(prefix="random-configurations-") as folder:

        def result(candidate: Options) -> Result:
            return result_of(candidate, Path(folder), seed)

        first = result(options)
        if first.status != "differs" or not tries:
            return seed, first, options
        shrunk = shrink(options, lambda candidate: result(candidate).status == "differs", tries)
        last = result(shrunk)
        # what hangs on the moment of a kill may not come again
        return (seed, last, shrunk) if last.status == "differs" else (seed, first, options)


def told(seed: int, result: Result, options: Options) -> str:
    """Return a failure in words, with the command that runs it again."""
    lines = [f"seed {seed}: {changed(options)}", *(f"    {line}" for line in result.details)]
    again = (
        f"random_configurations.py --seeds {seed} --options {shlex.quote(repr(changed(options)))}"
    )
    return "\n".join([*lines, f"    again: python tests/resume/{again}"])


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
    parser.add_argument("--seeds", default="0:100", help="first:last, without the last; or one")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument(
        "--tries", type=int, default=MOST_TRIES, help="runs to shrink a failure; 0 leaves it"
    )
    parser.add_argument("--options", help="what is not the simplest, as a failure is printed")
    parser.add_argument("--own-loop", action="store_true", help="by Run, in the place of fit")
    parser.add_argument("--accelerator", choices=SPACE["accelerator"], default="cpu")
    parser.add_argument("--only", choices=["chains", "others"], help="leave the others out")
    given = parser.parse_args(arguments)
    first, _, last = given.seeds.partition(":")
    if given.options:
        return _examine_again(ast.literal_eval(given.options), int(first))
    seeds = range(int(first), int(last or int(first) + 1))
    if given.only:
        seeds = [s for s in seeds if (s % CHAINS_OF == 0) == (given.only == "chains")]
    statuses: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for start in range(0, len(seeds), SEEDS_OF_A_POOL):
        part = seeds[start : start + SEEDS_OF_A_POOL]
        # spawned, since threads of torch do not survive a fork
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(given.jobs, context, _begin) as pool:
            not_drawn = {"loop": "run" if given.own_loop else "trainer"}
            not_drawn["accelerator"] = given.accelerator
            for found in pool.map(partial(check, tries=given.tries, **not_drawn), part):
                _count(found[1], statuses, reasons)
                if found[1].status == "differs":
                    print(told(*found), flush=True)
        print(f"{part[0]} to {part[-1]}: {_counted(statuses)}", flush=True)
    for reason, count in reasons.most_common():
        print(f"{count:5} {reason}")
    print(f"{len(seeds)} configurations: {_counted(statuses)}")
    return 1 if statuses["differs"] else 0


def _examine_again(options: Options, seed: int) -> int:
    """Examine one configuration, of which only what is not the simplest is given."""
    torch.set_num_threads(1)
    whole = {name: values[0] for name, values in SPACE.items()} | options
    with tempfile.TemporaryDirectory(prefix="random-configurations-") as folder:
        result = result_of(whole, Path(folder), seed)
    print(told(seed, result, whole) if result.status == "differs" else result)
    return 1 if result.status == "differs" else 0


def _count(result: Result, statuses: Counter[str], reasons: Counter[str]) -> None:
    """Count a status, and of runs that cannot be or cannot be exact the messages that say so."""
    statuses[result.status] += 1
    if result.status in ("refused", "warned"):
        reasons.update({f"{result.status}: {without_particulars(d)}" for d in result.details})


def _counted(statuses: Counter[str]) -> str:
    return ", ".join(f"{count} {status}" for status, count in sorted(statuses.items()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
