"""What the tests against other frameworks stand on: scripts, each run in a process of its own."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def results_of(tmp_path_factory) -> Callable[..., dict]:
    """What a script writes, which is run once, also where several workers of pytest ask for it."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # that of all workers

    def run(script: Path, *path: str | Path) -> dict:
        """Run `script TARGET`; it imports from this checkout and from `path`."""
        name = "-".join(script.relative_to(ROOT).with_suffix("").parts)
        target = folder / f"{name}.json"
        with (folder / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not target.exists():
                done = subprocess.run(
                    [sys.executable, script, target],
                    cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (*path, ROOT)))},
                )  # fmt: skip
                assert done.returncode == 0, done.stderr
        return json.loads(target.read_text(encoding="utf-8"))

    return run
