"""What the tests against other frameworks stand on: scripts, each run in a process of its own."""

from __future__ import annotations

import fcntl
import json
import os
import socket
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


@pytest.fixture(scope="session")
def results_of_two(tmp_path_factory) -> Callable[..., list[dict]]:
    """What a script writes in each of two processes that run it together, likewise."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent

    def run(script: Path, *names: str) -> list[dict]:
        """Run `script TARGET NAME...` in both."""
        name = "-".join((*script.relative_to(ROOT).with_suffix("").parts, "two"))
        targets = [folder / f"{name}.json.rank{rank}" for rank in range(2)]
        with (folder / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not targets[0].exists():
                run_in_two([[script, target, *names] for target in targets])
        return [json.loads(target.read_text(encoding="utf-8")) for target in targets]

    return run


def run_in_two(commands: list[list], timeout: float = 240) -> None:
    """Run Python with each process's arguments, and see to it that none is left."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = [
        subprocess.Popen(
            [sys.executable, *command],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={
                **{key: value for key, value in os.environ.items() if key != "PL_GLOBAL_SEED"},
                "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0", "NODE_RANK": "0",
                "RANK": str(rank), "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT),
                "TRAINER_HOOKS_DISABLE_PLUGINS": "1",
            },
        )
        for rank, command in enumerate(commands)
    ]  # fmt: skip
    try:
        for one in started:
            output, _ = one.communicate(timeout=timeout)
            assert one.returncode == 0, output
    finally:
        for one in started:
            one.kill()
            one.wait()
