"""Compare programs in their own framework with what they do here.

    python tests/programs/compare_programs.py FRAMEWORK [names]

prints what is not as declared. A program's `DIFFERENCES` maps the path of a value, in which `*`
stands for anything, to the reason: a row of the tables of differences, or "open: ...". A path that
begins with "ported:" or "hosted:" is of that way alone.
"""

from __future__ import annotations

import difflib
import fnmatch
import itertools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SUPPORT = HERE.parent / "support"
COMPOSER = HERE.parent / "adapters" / "composer" / "stand_ins"
sys.path[:0] = [str(place) for place in (HERE, SUPPORT) if str(place) not in sys.path]

from plain_values import is_same  # noqa: E402 - found from here

__all__ = ["flat", "objections"]

MISSING = "not there"
COMMON = {
    "files.*/run.jsonl": "Files in the folder of a logger",
    "files.*/hparams.json": "Files in the folder of a logger",
    "files.*/hparams.yaml": "Files in the folder of a logger",
    "files.*/.tensorboard": "Files in the folder of a logger",
}
"""Differences that any program may show."""

SHOWN = 16
"""Lines of a long list's difference that are shown."""

ONLY_PORTED = {"port": [], "foreign": []}
"""Values that only a ported program has, as they should be."""


def flat(value: Any, path: str = "") -> dict[str, Any]:
    """Return the leaves of nested dicts by their paths."""
    if not isinstance(value, dict) or (path.endswith(("weights", "metrics")) and not value):
        return {path: value}
    found = {}
    for name, item in value.items():
        found |= flat(item, f"{path}.{name}" if path else str(name))
    return found


def objections(own: dict, here: dict, way: str, differences: dict[str, str]) -> dict[str, str]:
    """Return what is not as declared: new differences, and declared ones that do not show.

    Args:
        own: the values of a program in its own framework.
        here: those of the way that it is run here.
        way: "ported" or "hosted".
        differences: what the program declares.
    """
    if own.get("raised") != here.get("raised"):  # all the rest follows from it
        kept = ("raised", *ONLY_PORTED)
        own, here = ({name: one[name] for name in kept if name in one} for one in (own, here))
    there, ours = flat({**(ONLY_PORTED if way == "ported" else {}), **own}), flat(here)
    common = [(path, path) for path in COMMON]
    declared = [
        (path, path.removeprefix(f"{way}:"))
        for path in differences
        if path.startswith(f"{way}:") or ":" not in path.partition(".")[0]
    ]
    wrong, shown = {}, set()
    for name in {**there, **ours}:
        theirs, mine = there.get(name, MISSING), ours.get(name, MISSING)
        if is_same(theirs, mine, is_exact=".weights" in name):
            continue
        known = [
            path for path, pattern in (*declared, *common) if fnmatch.fnmatchcase(name, pattern)
        ]
        shown.update(known)
        if not known:
            wrong[name] = f"a new difference:\n{_told(theirs, mine)}"
    for path, _ in declared:
        if path not in shown:
            wrong[path] = "the same by now: take the declared difference away"
    return wrong


def _told(there: Any, here: Any) -> str:
    """Return two values, of long lists only the items that differ."""
    if isinstance(there, list) and isinstance(here, list) and len(there) + len(here) > 8:
        said = difflib.unified_diff(
            list(map(str, there)), list(map(str, here)), n=1, lineterm="", fromfile="own",
            tofile="here",
        )  # fmt: skip
        return "\n".join(f"    {line}" for line in itertools.islice(said, SHOWN))
    return f"    own  {there}\n    here {here}"


def main(framework: str, *names: str) -> None:
    """Run programs in all ways, and print what is not as declared."""
    from lightning_package import stand_in
    from run_programs import constants, programs, ways

    found, running = {}, {}
    with tempfile.TemporaryDirectory() as temporary:
        places = [SUPPORT, HERE.parents[1]]
        if framework == "lightning":
            places.insert(0, stand_in(Path(temporary)))
        if framework != "lightning":
            places.insert(0, COMPOSER)
        for way in ("own", *ways(framework)):
            target = Path(temporary, f"{way}.json")
            environment = {
                **os.environ,
                "OMP_NUM_THREADS": "1",
                "TRAINER_HOOKS_DISABLE_PLUGINS": "1",
            }
            environment["PYTHONPATH"] = os.pathsep.join(map(str, places))
            command = [
                sys.executable,
                str(HERE / "run_programs.py"),
                str(target),
                framework,
                way,
                *names,
            ]
            running[way] = subprocess.Popen(command, env=environment)
        for way, process in running.items():
            assert process.wait() == 0, way
            found[way] = json.loads(Path(temporary, f"{way}.json").read_text(encoding="utf-8"))
    for name, file in programs(framework).items():
        if names and name not in names:
            continue
        seconds = [round(found[way][name]["seconds"], 2) for way in found if name in found[way]]
        own = found["own"][name]["values"]
        print(f"== {name} {seconds} {own.get('raised', '')}\n{own.pop('traceback', '')}")
        if "OWN" in os.environ:
            print(json.dumps(own, indent=1))
        for way in ways(framework):
            if name not in found[way]:
                continue
            here = found[way][name]["values"]
            if "raised" in here:
                print("\n".join(here.pop("traceback", "").splitlines()[-9:]))
            differences = constants(file).get("DIFFERENCES", {})
            for value, text in objections(own, here, way, differences).items():
                print(f"  {way} {value}: {text}")


if __name__ == "__main__":
    main(*sys.argv[1:])
