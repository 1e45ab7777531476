"""Run published callbacks in our Trainer: `python run.py [--write] [WORD...]`.

Each case runs in a process and an empty folder of its own, if its package is installed. What came
of it is printed; with `--write` it is noted in `published.json`, of which the table in
docs/foreign-callbacks.md is made. Words choose the cases whose names hold one of them.
"""

from __future__ import annotations

import atexit
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent
NOTED = HERE / "published.json"
SUPPORT = HERE.parents[1] / "support"
STAND_INS = HERE.parent / "composer" / "stand_ins"
"""For torchvision, which Composer imports for models of its own alone."""


def versions_of(case) -> dict[str, str] | None:
    """Return the versions of a case's packages, or None if one is not installed."""
    found = {}
    for name in (case.package, case.by or case.package):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            return None
    return found


@cache
def place_of_lightning() -> str:
    """Return a folder with the package `lightning`, if only `pytorch_lightning` is installed."""
    if find_spec("lightning") is not None or find_spec("pytorch_lightning") is None:
        return ""
    sys.path.append(str(SUPPORT))
    from lightning_package import stand_in

    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    stand_in(Path(folder))
    return folder


def tried(case, run=subprocess.run) -> str:
    """`run` a case in a process of its own; return an empty text if it did what is expected."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = run(
                [sys.executable, __file__, "--one", case.name],
                cwd=folder, capture_output=True, text=True, timeout=300, check=False,
                env={**os.environ, "HOME": folder, "PYTHONPATH": os.pathsep.join([
                    str(HERE.parents[2]), place_of_lightning(), os.environ.get("PYTHONPATH", ""),
                    str(STAND_INS),
                ])},
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return "it did not end in 300 seconds"
    if not case.fails:
        return "" if done.returncode == 0 else done.stderr[-3000:]
    if done.returncode == 0:
        return f"it runs, and was expected to fail with {case.fails!r}"
    return "" if case.fails in done.stderr else done.stderr[-3000:]


def all_cases() -> list:
    """Return the cases of all files."""
    sys.path.insert(0, str(HERE))
    import common

    for name in ("of_ignite", "of_lightning", "of_transformers", "compared_lightning",
                 "compared_transformers", "compared_composer", "compared_ignite"):  # fmt: skip
        importlib.import_module(name)
    return common.CASES


def main(*words: str) -> int:
    if words[:1] == ("--one",):
        next(case for case in all_cases() if case.name == words[1]).run()
        return 0
    is_written = "--write" in words
    chosen = [word for word in words if word != "--write"]
    noted = json.loads(NOTED.read_text(encoding="utf-8")) if NOTED.exists() else {}
    failed = 0
    for case in all_cases():
        if chosen and not any(word in case.name for word in chosen):
            continue
        versions = versions_of(case)
        if versions is None:
            print(f"skipped: {case.name}: {case.package} is not installed", flush=True)
            continue
        error = tried(case)
        failed += bool(error)
        print(f"{'FAILED' if error else 'ok'}: {case.name} {versions}", flush=True)
        if error:
            print(error, flush=True)
        else:
            noted[case.name] = {
                "packages": versions, "what": case.what, "runs": not case.fails, "why": case.why,
                "compared": case.compared,
            }  # fmt: skip
    if is_written:
        rows = {case.name: noted[case.name] for case in all_cases() if case.name in noted}
        NOTED.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
