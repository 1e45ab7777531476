"""Larger runs, killed at random moments and resumed in new processes, end as if they were not."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import warm_python
from samples import one_in

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).with_name("killed_run.py")
SETTINGS = ["plain", "gan", "stream", "several", "persistent", "stateful"]
BATCHES = 120


def newest(folder: Path) -> Path | None:
    """Return the checkpoint that was finished last."""
    files = [file for file in folder.glob("saved/*.ckpt") if not file.name.startswith(".")]
    return max(files, key=lambda file: file.stat().st_mtime_ns, default=None)


def run(folder: Path, name: str, kill_at: int | None, delay: float) -> int:
    """Run a setting from the newest checkpoint; kill it a moment after a batch; return the code."""
    ckpt_path = newest(folder)
    process = warm_python.Popen(
        [
            sys.executable,
            "-W",
            "ignore",
            str(SCRIPT),
            name,
            *([str(ckpt_path)] if ckpt_path else []),
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        # the load report is printed too
        if kill_at is not None and line.strip().isdigit() and int(line) >= kill_at:
            # anywhere in the batches and saves that follow: the process is not waiting for this
            try:
                process.wait(delay)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
            break
    process.stdout.close()
    return process.wait(60)


def same(first, second) -> bool:
    """Return whether two nested values are the same, bit for bit."""
    if isinstance(first, torch.Tensor):
        return torch.equal(first, second)
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[key], second[key]) for key in first)
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(same, first, second))
    return first == second


def end_of(folder: Path) -> dict:
    """Return what a run ended with, without the names of its folder and its wall times."""
    end = torch.load(folder / "end.ckpt", weights_only=True)
    assert end["trainer_hooks"].pop("wall_times")
    for key in [key for key in end["callbacks"] if key.startswith("ModelCheckpoint")]:
        del end["callbacks"][key]
    return end


@pytest.fixture(scope="module")
def uncut(tmp_path_factory):
    """What the runs end with that nobody kills; all in one process, to save its start."""
    folder = tmp_path_factory.mktemp("uncut")
    done = warm_python.run(
        [sys.executable, "-W", "ignore", str(SCRIPT), "all", *SETTINGS],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        timeout=200,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == str(BATCHES).encode()
    return {name: end_of(folder / name) for name in SETTINGS}


@pytest.mark.parametrize("name", one_in(6, SETTINGS))
def test_a_run_killed_at_random_ends_as_the_one_that_was_not(tmp_path, uncut, name):
    """Killed by SIGKILL, some twice, and resumed from its newest file, a run is still the same."""
    pytest.importorskip("torchdata" if name == "stateful" else "torch")
    chance = random.Random(SETTINGS.index(name))
    kills = 2 if name == "plain" else 1
    moments = sorted(chance.sample(range(8, BATCHES - 10), kills))
    codes = [run(tmp_path, name, at, chance.random() * 0.02) for at in moments]
    assert codes == [-signal.SIGKILL] * kills
    assert newest(tmp_path) is not None
    assert run(tmp_path, name, None, 0.0) == 0
    end = end_of(tmp_path)
    assert end["epoch"] == 3
    assert [key for key in end if not same(uncut[name][key], end[key])] == []
