"""A training that is killed goes on by the config that it wrote, bit for bit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import warm_python

from trainer_hooks.checkpoint.file import read_checkpoint
from trainer_hooks.cli.main import main

ROOT = Path(__file__).parents[3]
CONFIG = """
model: {class_path: configured.Trained, init_args: {lr: 0.05}}
data: configured.Points
seed_everything: 3
trainer:
  accelerator: cpu
  max_epochs: 3
  log_every_n_steps: 1
  enable_model_summary: false
  plugins: false
  callbacks:
  - waiting.Waits
  - class_path: ModelCheckpoint
    init_args: {every_n_train_steps: 3, save_top_k: -1}
optimizer: {class_path: Adam, init_args: {lr: 0.05}}
lr_scheduler: {class_path: StepLR, init_args: {step_size: 1, gamma: 0.5}}
"""
WAITING = """
import os, sys
from trainer_hooks import Callback

class Waits(Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if str(trainer.progress.batches_completed) == os.environ.get("WAIT_AT"):
            print("here", flush=True)
            sys.stdin.read()
"""


def newest(folder: Path) -> dict:
    """What the checkpoint of the last step holds."""
    paths = folder.rglob("*.ckpt")
    return read_checkpoint(str(max(paths, key=lambda path: int(path.stem.rpartition("=")[2]))))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::trainer_hooks.errors.TrainerHooksWarning")
def test_a_killed_training_goes_on_by_its_own_config(here, classes, monkeypatch) -> None:
    """After SIGKILL, the config of the run's folder with `--ckpt_path auto` ends as uncut."""
    (here / "waiting.py").write_text(WAITING)
    (here / "run.yaml").write_text(CONFIG)
    fit = [sys.executable, "-m", "trainer_hooks", "fit", "--config"]
    path = os.pathsep.join([str(ROOT), str(classes)])
    environ = {**os.environ, "PYTHONPATH": path, "WAIT_AT": "7"}
    with warm_python.Popen(
        [*fit, "run.yaml"], env=environ, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        assert "here" in next(line for line in process.stdout if "here" in line)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert newest(here)["global_step"] == 6

    again = [*fit, "trainer_logs/version_0/config.yaml", "--ckpt_path", "auto"]
    done = warm_python.run(
        again, env={**environ, "WAIT_AT": ""}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "resuming from" in done.stderr
    assert [path.name for path in Path("trainer_logs").iterdir()] == ["version_0"]
    ended = newest(here)

    (here / "uncut").mkdir()
    monkeypatch.setenv("WAIT_AT", "")
    assert main(["fit", "--config", "run.yaml", "--trainer.default_root_dir", "uncut"]) == 0
    uncut = newest(here / "uncut")
    assert ended["global_step"] == uncut["global_step"] == 12
    for name, value in uncut["state_dict"].items():
        assert torch.equal(ended["state_dict"][name], value)
    for name, value in uncut["optimizer_states"][0]["state"][0].items():
        assert torch.equal(ended["optimizer_states"][0]["state"][0][name], value)
