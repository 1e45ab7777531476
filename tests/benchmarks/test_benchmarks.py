"""The benchmarks still measure this package: each of its contestants runs, in a small form."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
import warm_python

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
CHECKPOINTS = [
    ("save", "trainer_hooks"),
    ("hold", "trainer_hooks, first save"),
    ("hold", "trainer_hooks, later saves"),
    ("resume", "trainer_hooks"),
]
STEPS = """
import sys
sys.path.insert(0, sys.argv[1])
import _worker, _workload
from contestants import CONTESTANTS, OURS
_worker.make_batches = lambda: _workload.make_batches(60)
for contestant in CONTESTANTS:
    if contestant.name.startswith(OURS) or contestant.target.startswith("handwritten"):
        _worker.main(contestant.target, 1, None)
"""

SAVES = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import small_saves
small_saves.SAVES, small_saves.STEPS = 8, 4
small_saves.run_child = lambda command, hash_seed: small_saves.measure(Path(sys.argv[2]))
small_saves.main(["--rounds", "1"])
"""


def run(*command: object, folder: Path, forks_children: bool = True) -> str:
    """Run a program of this interpreter in a folder and return what it prints."""
    done = warm_python.run(
        [sys.executable, *map(str, command)], cwd=folder, text=True, capture_output=True,
        forks_children=forks_children,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
def test_steps(tmp_path: Path) -> None:
    """All of ours train the same weights as the loop by hand."""
    printed = run("-c", STEPS, BENCHMARKS, folder=tmp_path)
    found = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    assert len(found) >= 9
    assert len({one["weights"] for one in found}) == 1


@pytest.mark.exhaustive
@pytest.mark.parametrize(("task", "name"), CHECKPOINTS)
def test_checkpoints(task: str, name: str, tmp_path: Path) -> None:
    """Saving, holding and resuming are timed, beside torch's own functions."""
    worker = BENCHMARKS / "_checkpoint_worker.py"
    result = tmp_path / "result.json"
    run(worker, task, name, 0.02, 1, tmp_path, result, folder=tmp_path)
    found = json.loads(result.read_text())
    assert found["seconds"][0] > 0
    assert found["baseline_seconds"][0] > 0


@pytest.mark.exhaustive
def test_small_saves(tmp_path: Path) -> None:
    """A save of a small model is timed beside torch's, of the same content."""
    printed = run("-c", SAVES, BENCHMARKS, tmp_path, folder=tmp_path)
    assert "trainer.save_checkpoint" in printed
    assert "by hand in the background" in printed


@pytest.mark.exhaustive
def test_start(tmp_path: Path) -> None:
    """A trainer reaches its first step, and its time is taken."""
    program = """
import sys
sys.path.insert(0, sys.argv[1])
import start
print(start.measure(["trainer_hooks", "trainer-hooks --help"], 1))
"""
    printed = run("-c", program, BENCHMARKS, folder=tmp_path, forks_children=False)
    assert "trainer-hooks --help" in printed


@pytest.mark.exhaustive
def test_long_runs(tmp_path: Path) -> None:
    """A short long run is measured in each of its cases."""
    script = BENCHMARKS / "long_runs.py"
    printed = run(script, "--steps", 400, "--fits", 20, "--checkpoints", 5, folder=tmp_path)
    assert "KB" in printed


@pytest.mark.slow
def test_gpu(tmp_path: Path) -> None:
    """Without a GPU nothing is claimed; a CPU tries the script, with the same weights by all."""
    script = BENCHMARKS / "gpu.py"
    if not torch.cuda.is_available():
        assert run(script, folder=tmp_path).startswith("not measured")
    small = ("--device", "cpu", "--rounds", 1, "--steps", 8, "--case", "step", "transfer", "bf16")
    printed = run(script, *small, "waits", "graphs", folder=tmp_path)
    assert printed.count("trainer_hooks") == 3
    differences = [line.split()[-1] for line in printed.splitlines() if "trainer_hooks  " in line]
    assert differences == ["0e+00"] * 3
    assert printed.count("not measured (no CUDA device)") == 2
