"""Run the programs on both frameworks and compare: `python tests/lightning/compare.py [names]`.

Each framework has a process of its own, so that neither sees the other; a third one runs them here
with Lightning's names, as they run by other import lines alone.
"""

from __future__ import annotations

import difflib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

HERE = Path(__file__).parent
SUPPORT = HERE.parent / "support"
sys.path[:0] = [str(place) for place in (HERE, SUPPORT) if str(place) not in sys.path]

from plain_values import is_same  # noqa: E402 - found from here
from programs import all_programs, differences_of  # noqa: E402 - found from here
from side import PACKAGES  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["compare", "objections", "run_all"]

MISSING = "not there"
SECONDS = 600
"""How long the programs of one framework may take; they need ten on a machine of their own."""


def run_all(*names: str) -> dict[str, dict[str, Any]]:
    """Run programs in all ways, at the same time; return what each gave, by way and name."""
    environment = {name: v for name, v in os.environ.items() if name != "PL_GLOBAL_SEED"}
    environment |= {"OMP_NUM_THREADS": "1", "TRAINER_HOOKS_DISABLE_PLUGINS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(map(str, (HERE.parents[1], SUPPORT)))
    with tempfile.TemporaryDirectory() as folder:
        running = []
        for framework in PACKAGES:
            target = Path(folder, f"{framework}.json")
            command = [sys.executable, str(HERE / "half.py"), framework, str(target), *names]
            process = subprocess.Popen(
                command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            running.append((framework, target, process))
        found = {}
        try:
            for framework, target, process in running:
                said, _ = process.communicate(timeout=SECONDS)
                assert process.returncode == 0, f"{framework}: {said.decode()[-6000:]}"
                found[framework] = json.loads(target.read_text(encoding="utf-8"))
        finally:
            for _, _, process in running:
                process.kill()
    return found


def compare(lightning: Any, here: Any) -> dict[str, tuple[Any, Any]]:
    """Return the values that are not the same, by name: Lightning's and ours."""
    names = [name for name in {**lightning, **here} if name != "message"]  # an error's text
    pairs = {name: (lightning.get(name, MISSING), here.get(name, MISSING)) for name in names}
    return {name: pair for name, pair in pairs.items() if not is_same(*pair, name == "weights")}


def objections(
    program: Callable, lightning: Mapping[str, Any], here: Mapping[str, Any]
) -> dict[str, str]:
    """Return what is wrong with a program's values: a new difference, or one that is gone."""
    known = differences_of(program)
    found = compare(lightning, here)
    wrong = {}
    for name in {**found, **known}:
        theirs, ours = lightning.get(name, MISSING), here.get(name, MISSING)
        if name not in known:
            wrong[name] = f"a new difference:\n{_told(theirs, ours)}"
        elif name not in found:
            wrong[name] = f"the same by now, {ours}: take the declared difference away"
        elif not (is_same(known[name].lightning, theirs) and is_same(known[name].here, ours)):
            wrong[name] = f"not what is declared:\n{_told(theirs, ours)}"
    return wrong


def _told(lightning: Any, here: Any) -> str:
    """Return two values, of long lists only the items that differ."""
    if isinstance(lightning, list) and isinstance(here, list) and len(lightning) + len(here) > 8:
        theirs, ours = list(map(str, lightning)), list(map(str, here))
        said = difflib.unified_diff(theirs, ours, n=1, lineterm="")
        return "\n".join(f"    {line}" for line in said)
    return f"    Lightning {lightning}\n    here      {here}"


def main(*names: str) -> None:
    """Print what differs, and what each program takes."""
    chosen = [name for name in all_programs() if not names or any(n in name for n in names)]
    found = run_all(*chosen)
    failed = 0
    for name in chosen:
        theirs, ours = (found[framework][name] for framework in ("lightning", "here"))
        program = all_programs()[name]
        wrong = objections(program, theirs["values"], ours["values"])
        failed += bool(wrong)
        if wrong or names:
            print(f"{name} ({theirs['seconds']:.2f} s, {ours['seconds']:.2f} s)")
        for value, text in wrong.items():
            print(f"  {value}: {text}")
        if names and not wrong:
            print(f"  the same: {theirs['values']}")
    seconds = {f: round(sum(one["seconds"] for one in found[f].values()), 1) for f in found}
    print(f"{len(chosen)} programs, {failed} not as declared; seconds: {seconds}")


if __name__ == "__main__":
    main(*sys.argv[1:])
