"""Processes that neither torchrun nor the Trainer has started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import warm_python
from launchers import slurm_job, unlaunched

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
pytestmark = pytest.mark.slow


def test_tasks_of_slurm_find_each_other(mark, tmp_path):
    """With the variables of srun alone, two tasks train one model and say where they come from."""
    common = {
        **unlaunched(), **slurm_job(),
        "MARK": mark, "PYTHONPATH": f"{ROOT}{os.pathsep}{HERE}", "OMP_NUM_THREADS": "1",
        "TRAINER_HOOKS_DISABLE_PLUGINS": "1",
    }  # fmt: skip
    command = [sys.executable, "-m", "package", str(tmp_path), "goes_through", "x"]
    tasks = [
        warm_python.Popen(
            command, cwd=HERE, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={**common, "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)},
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        outputs = [task.communicate(timeout=100)[0] for task in tasks]
    finally:
        for task in tasks:
            task.kill()
    assert [task.returncode for task in tasks] == [0, 0], outputs
    first, second = (json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in range(2))
    assert first["weights"] == second["weights"] != first["before"]
    assert "2 processes (gloo, CPU), started by SLURM because SLURM_NTASKS=2" in outputs[0]


@pytest.mark.exhaustive
def test_ray_train_brings_its_own_group(ran, tmp_path):
    """Inside two workers of Ray Train the group that Ray made is used, and left to Ray."""
    pytest.importorskip("ray.train.torch", reason="needs the extra 'ray'")
    program = HERE / "on_ray.py"
    code, output, left = ran(str(program), str(tmp_path))
    assert code == 0, output
    assert left == [], output
    first, second = (json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in range(2))
    assert first["weights"] == second["weights"]
    assert [first["place"], second["place"]] == [[0, 2], [1, 2]]
    assert [first["is_there"], second["is_there"]] == [True, True]
    assert "2 processes (gloo, CPU), in a process group that was there" in output
