"""What a hook costs: with nobody listening, with one listener, and to register callbacks.

Everything is timed in one process and one loop, interleaved, so that the machine's speed is the
same for all. A figure is the minimum over many short repeats, because whatever else runs can only
add time; the empty loop's own time is taken off. Nothing here needs torch.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

from _harness import table

from trainer_hooks.callback import Callback
from trainer_hooks.connector.connector import CallbackConnector

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

CALLS = 2000
TARGETS = {"nobody listens": 60.0, "one listener, over a direct call": 250.0}
"""Nanoseconds a firing."""
LINEAR = 1.5
"""How much dearer each of ten thousand registrations may be than each of a thousand."""


class Idle(Callback):
    """Listens to nothing."""


class Listener(Callback):
    """Listens, and does nothing."""

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        pass


def nothing(target: object) -> None:
    for _ in range(CALLS):
        pass


def fire(target: object) -> None:
    for _ in range(CALLS):
        target.on_train_batch_end(None, None, None, None, 0)


class Case(NamedTuple):
    name: str
    run: Callable[[object], None]
    target: object


def relay(*callbacks: Callback) -> object:
    return CallbackConnector(callbacks, discover=False).relay


def cases() -> list[Case]:
    return [
        Case("empty loop", nothing, None),
        Case("direct call", fire, Listener()),
        Case("nobody listens", fire, relay()),
        Case("100 callbacks, none listens", fire, relay(*(Idle() for _ in range(100)))),
        Case("one listener", fire, relay(Listener())),
        Case("one listener among 100", fire, relay(Listener(), *(Idle() for _ in range(99)))),
        Case("ten listeners", fire, relay(*(Listener() for _ in range(10)))),
    ]


def firings(repeats: int) -> dict[str, float]:
    """Return nanoseconds a firing by case."""
    best: dict[str, float] = {}
    everything = cases()
    for _ in range(repeats):
        for case in everything:
            started = time.perf_counter_ns()
            case.run(case.target)
            took = (time.perf_counter_ns() - started) / CALLS
            best[case.name] = min(took, best.get(case.name, took))
    loop = best.pop("empty loop")
    figures = {name: took - loop for name, took in best.items()}
    figures["one listener, over a direct call"] = figures["one listener"] - figures["direct call"]
    return figures


def at_once(count: int) -> None:
    connector = CallbackConnector([Listener() for _ in range(count)], discover=False)
    connector.relay.on_train_batch_end(None, None, None, None, 0)


def one_by_one(count: int) -> None:
    connector = CallbackConnector(discover=False)
    for _ in range(count):
        connector.add(Listener())
    connector.relay.on_train_batch_end(None, None, None, None, 0)


def registrations(counts: Sequence[int], repeats: int) -> dict[str, dict[int, float]]:
    """Return microseconds a registration, by way and number; the first firing is part of it."""
    figures: dict[str, dict[int, float]] = {}
    for way, register in (("at once", at_once), ("one by one", one_by_one)):
        taken: dict[int, list[float]] = {count: [] for count in counts}
        for _ in range(repeats):
            for count in counts:
                gc.collect()
                started = time.perf_counter()
                register(count)
                taken[count].append((time.perf_counter() - started) / count * 1e6)
        figures[way] = {count: statistics.median(times) for count, times in taken.items()}
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=500, help="short loops a case (500)")
    parser.add_argument("--check", action="store_true", help="exit 1 where a target is missed")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    arguments = parser.parse_args()
    counts = (1000, 3000, 10_000)
    fired = firings(arguments.repeats)
    registered = registrations(counts, 3)
    if arguments.json:
        print(json.dumps({"firing_ns": fired, "registration_us": registered}))
    else:
        rows = [
            [name, f"{took:.0f}", f"{TARGETS[name]:.0f}" if name in TARGETS else ""]
            for name, took in fired.items()
        ]
        print(table(["a firing", "ns", "target"], rows))
        header = ["a registration", *(f"µs each of {count}" for count in counts)]
        rows = [
            [way, *(f"{figures[count]:.0f}" for count in counts)]
            for way, figures in registered.items()
        ]
        print(table(header, rows))
    missed = [name for name, most in TARGETS.items() if fired[name] > most]
    missed += [
        f"registrations {way} are not linear"
        for way, figures in registered.items()
        if figures[counts[-1]] > LINEAR * figures[counts[0]]
    ]
    for miss in missed:
        print(f"over its target: {miss}", file=sys.stderr)
    return 1 if missed and arguments.check else 0


if __name__ == "__main__":
    sys.exit(main())
