"""What looking for plugins costs in an environment of 400 distributions, in milliseconds.

The distributions are folders of metadata as an installer leaves them, in a temporary folder on
`sys.path`, beside those that this interpreter has anyway; a third of them have entry points, ten
are plugins. Each figure is the median over fresh interpreters. One round that is not measured warms
the disk cache. The first call includes the import of importlib_metadata, which nothing else in
trainer_hooks needs; torch is not imported before, though it would have loaded a part of that.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

from _harness import interleave, run_child, table

TARGET_MS = 50.0
TARGET_OFF_MS = 0.1
DISTRIBUTIONS = 400
PLUGINS = 10
_TIMED = """
import json, pathlib, sys, time
from trainer_hooks.hooks.discovery import installed_plugins, load_plugins
from trainer_hooks.hooks.plugin import PluginFilter

def timed(call):
    begin = time.perf_counter()
    found = call()
    return (time.perf_counter() - begin) * 1e3, found

off_ms, _ = timed(lambda: load_plugins(PluginFilter.of(False), lambda item: False))
is_untouched = "importlib_metadata" not in sys.modules
import_ms, _ = timed(lambda: __import__("importlib_metadata") if {import_first} else None)
first_ms, found = timed(installed_plugins)
again_ms, _ = timed(installed_plugins)
pathlib.Path(sys.argv[1]).write_text(json.dumps({{
    "off": off_ms, "import": import_ms, "first": first_ms, "again": again_ms,
    "found": len(found), "is_untouched": is_untouched,
}}))
"""
ROWS = {
    "the first installed_plugins(), its imports included": ("whole", "first"),
    "  importing importlib_metadata": ("parts", "import"),
    "  the first installed_plugins() after that": ("parts", "first"),
    "each further installed_plugins()": ("whole", "again"),
    "Trainer(plugins=False)": ("whole", "off"),
}


def write_environment(folder: Path, count: int) -> None:
    """Write the metadata of `count` distributions, as pip leaves them."""
    description = "A sentence of a long description, as they are in such files.\n" * 100
    for number in range(count):
        place = folder / f"distribution_{number}-1.{number}.dist-info"
        place.mkdir()
        (place / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: distribution-{number}\nVersion: 1.{number}\n"
            + "Classifier: Programming Language :: Python :: 3\n" * 12
            + f"\n{description}"
        )
        (place / "RECORD").write_text(f"distribution_{number}/__init__.py,,\n" * 50)
        if number % (count // PLUGINS) == 0:
            text = "[trainer_hooks.callbacks_factory]\nmonitor = distribution.factories:make\n"
            (place / "entry_points.txt").write_text(text)
        elif number % 3 == 0:
            (place / "entry_points.txt").write_text("[console_scripts]\ntool = distribution:main\n")


def measure(rounds: int) -> dict[str, dict[str, list[float]]]:
    """Return the milliseconds of each part, by kind of process."""
    codes = {
        "whole": _TIMED.format(import_first=False),
        "parts": _TIMED.format(import_first=True),
    }
    found: dict[str, dict[str, list[float]]] = {name: {} for name in codes}
    for number, name in interleave(list(codes), rounds + 1):
        result = run_child([sys.executable, "-c", codes[name]], hash_seed=number)
        assert result["found"] >= PLUGINS, "the environment is not the one that was written"
        assert result["is_untouched"], "importlib_metadata was imported where plugins are off"
        if number > 0:
            for part in ("off", "import", "first", "again"):
                found[name].setdefault(part, []).append(result[part])
    return found


def main(argv: list[str] | None = None) -> int:
    """Measure, print, and return 1 only if `--check` found a target missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=15, help="interpreters of each kind")
    parser.add_argument("--distributions", type=int, default=DISTRIBUTIONS, help="how many")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--check", action="store_true", help=f"exit 1 over {TARGET_MS:g} ms")
    arguments = parser.parse_args(argv)
    if arguments.distributions < PLUGINS:
        parser.error(f"--distributions must be {PLUGINS} or more: that many are plugins")
    with tempfile.TemporaryDirectory(prefix="distributions-") as folder:
        write_environment(Path(folder), arguments.distributions)
        inherited = os.environ.get("PYTHONPATH", "")
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [folder, inherited]))
        found = measure(arguments.rounds)
    figures = {row: found[kind][part] for row, (kind, part) in ROWS.items()}
    rows = [
        [row, f"{statistics.median(values):.2f}", f"{min(values):.2f}"]
        for row, values in figures.items()
    ]
    print(table([f"of {arguments.distributions} distributions", "ms", "least"], rows))
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1))
    first, *_, off = (statistics.median(values) for values in figures.values())
    met = first <= TARGET_MS and off <= TARGET_OFF_MS
    if arguments.check:
        print(f"\nTargets of {TARGET_MS:g} ms, and {TARGET_OFF_MS:g} ms where plugins are off: ")
        print("met." if met else "missed.")
    return int(arguments.check and not met)


if __name__ == "__main__":
    sys.exit(main())
