"""What `import trainer_hooks` adds to `import torch`, in milliseconds.

Every import happens in a fresh interpreter; the interpreters are interleaved. Each imports torch
first and then notes the processor time around the import in question, so the second or more that
torch takes, and its noise, is not in the difference, nor is the work of other processes. One round
that is not measured compiles the bytecode and warms the disk cache. `--check` looks at the row that
imports the Trainer: a package that puts its imports off would pass the other one whatever it costs.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import statistics
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from _harness import ChildError, environment, interleave, run_child, table

TARGET_MS = 30.0
OURS = "trainer_hooks"
STATEMENTS = {
    "torch": "pass",
    OURS: f"import {OURS}",
    f"{OURS}.Trainer": f"from {OURS} import Callback, Module, Trainer",  # whatever is put off
    "lightning.pytorch": "import lightning.pytorch",
    "ignite.engine": "import ignite.engine",
    "pytorch_accelerated": "import pytorch_accelerated",
    "transformers.Trainer": "from transformers import Trainer",
}
_TIMED = """
import json, pathlib, sys, time
begin = time.process_time()
import torch
middle, before = time.process_time(), len(sys.modules)
{statement}
end = time.process_time()
found = {{"torch_ms": (middle - begin) * 1e3, "added_ms": (end - middle) * 1e3,
         "modules": len(sys.modules) - before}}
pathlib.Path(sys.argv[1]).write_text(json.dumps(found))
"""
_LINE = re.compile(r"import time:\s+(\d+) \|\s+(\d+) \|\s+(\S+)")
_MARK = "the import in question follows"


class Added(NamedTuple):
    """What one import adds: milliseconds (median and minimum over the rounds) and modules."""

    median_ms: float
    least_ms: float
    torch_ms: float
    modules: int


def chosen(no_peers: bool) -> list[str]:
    """Return the names of what to import: torch, ours, and the peers that are installed."""
    peers = [name for name in STATEMENTS if name != "torch" and not name.startswith(OURS)]
    found = [] if no_peers else [p for p in peers if importlib.util.find_spec(p.split(".")[0])]
    return [name for name in STATEMENTS if name not in peers or name in found]


def measure(names: list[str], rounds: int) -> dict[str, Added]:
    """Time each import in `rounds` fresh interpreters; one that fails is reported and left out."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for number, name in interleave(names, rounds + 1):
        if name not in found:
            continue
        code = _TIMED.format(statement=STATEMENTS[name])
        try:
            result = run_child([sys.executable, "-c", code], hash_seed=number)
        except ChildError as error:
            print(f"\n{name}: failed, left out: {error}")
            del found[name]
            continue
        if number > 0:
            found[name].append(result)
    return {name: _summary(results) for name, results in found.items()}


def _summary(results: list[dict[str, float]]) -> Added:
    added = [result["added_ms"] for result in results]
    whole = statistics.median(result["torch_ms"] for result in results)
    return Added(statistics.median(added), min(added), whole, int(results[0]["modules"]))


def slowest_modules(name: str, count: int) -> list[tuple[str, int]]:
    """Return the modules that importing `name` after torch loads, with their own µs, slowest first.

    The interpreter's own measuring slows an import down, so their sum is over what was timed.
    """
    mark = f"print({_MARK!r}, file=sys.stderr, flush=True)"
    code = f"import sys, torch; {mark}; {STATEMENTS[name]}"
    command = [sys.executable, "-X", "importtime", "-c", code]
    env = environment(0)
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    lines = done.stderr.split(_MARK, 1)[1]
    own = [(module, int(us)) for us, _, module in _LINE.findall(lines)]
    return sorted(own, key=lambda pair: -pair[1])[:count]


def main(argv: list[str] | None = None) -> int:
    """Measure, print, and return 1 only if `--check` found the target missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=9, help="interpreters per import")
    parser.add_argument("--top", type=int, default=15, help="how many of our modules to list")
    parser.add_argument("--no-peers", action="store_true", help="time only torch and ours")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--check", action="store_true", help=f"exit 1 over {TARGET_MS:g} ms")
    arguments = parser.parse_args(argv)
    added = measure(chosen(arguments.no_peers), arguments.rounds)
    rows = [
        [name, f"{a.median_ms:.1f}", f"{a.least_ms:.1f}", str(a.modules), f"{a.torch_ms:.0f}"]
        for name, a in added.items()
    ]
    headers = ["after import torch", "added ms", "least", "modules added", "torch ms"]
    print(table(headers, rows))
    whole = f"{OURS}.Trainer"
    modules = slowest_modules(whole, arguments.top) if whole in added else []
    print(f"\nmodules that {whole} loads, by their own time under -X importtime")
    print(table(["module", "ms"], [[module, f"{us / 1e3:.2f}"] for module, us in modules]))
    if arguments.json:
        figures = {name: a._asdict() for name, a in added.items()}
        arguments.json.write_text(json.dumps({"added": figures, "modules": modules}, indent=1))
    met = whole in added and added[whole].median_ms <= TARGET_MS
    if arguments.check:
        print(f"\nTarget of {TARGET_MS:g} ms {'met' if met else 'missed'}.")
    return int(arguments.check and not met)


if __name__ == "__main__":
    sys.exit(main())
