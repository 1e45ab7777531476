"""Runs that start at one moment: each has a folder of its own, with all that is its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
import warm_python

PROGRAM = str(Path(__file__).with_name("concurrent_runs.py"))


def start(root: Path, count: int, kind: str) -> list[dict[str, object]]:
    """Start so many runs at one moment; return what those told that were not killed."""
    command = [sys.executable, "-W", "error", PROGRAM, str(root), str(count)]
    done = warm_python.run(
        command, env={**os.environ, "TOGETHER": kind}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return [json.loads(path.read_text()) for path in sorted(root.glob("run-*.json"))]


def weights(path: object) -> tuple[float, float]:
    """Return whose weights a file holds, and after how many steps."""
    file = torch.load(str(path), weights_only=True)
    mine = file["hyper_parameters"]["mine"]
    assert float(file["state_dict"]["weight"]) == pytest.approx(mine * file["global_step"] / 100)
    return mine, file["global_step"]


def check(runs: list[dict[str, object]], count: int) -> None:
    """Make sure that each run has a folder of its own, and its own weights in it."""
    assert len(runs) == count
    assert len({run["log_dir"] for run in runs}) == count
    for run in runs:
        folder = Path(str(run["log_dir"]))
        assert run["told"] == str(folder)
        assert weights(run["best"]) == weights(run["last"]) == (run["mine"], 9)
        assert {Path(str(run[name])).parent for name in ("best", "last")} == {
            folder / "checkpoints"
        }
        assert len(list((folder / "checkpoints").iterdir())) == 2
        assert {"metrics.csv", "run.jsonl", "hparams.json"} < {p.name for p in folder.iterdir()}
        assert json.loads((folder / "hparams.json").read_text())["mine"] == run["mine"]


@pytest.mark.exhaustive
def test_fifty_runs_started_at_one_moment(tmp_path) -> None:
    """Fifty folders, nothing lost; killed and started again at once, each goes on with its own."""
    assert start(tmp_path, 50, "kill") == []
    folders = sorted((tmp_path / "trainer_logs").iterdir())
    assert len(folders) == 50
    runs = start(tmp_path, 50, "go on")
    check(runs, 50)
    assert sorted((tmp_path / "trainer_logs").iterdir()) == folders
    for run in runs:
        assert str(run["resumed_from"]).startswith(f"{run['log_dir']}/")


@pytest.mark.slow
def test_a_few_runs_started_at_one_moment(tmp_path) -> None:
    """The same in a few seconds, of runs that are not cut."""
    check(start(tmp_path, 4, ""), 4)


@pytest.mark.slow
def test_a_sweep_of_the_shell(tmp_path) -> None:
    """`for lr in ...; do python train.py $lr & done`: each run keeps its checkpoints."""
    (tmp_path / "train.py").write_text(
        textwrap.dedent(
            """
            import sys, torch
            from trainer_hooks import Module, Trainer
            class Net(Module):
                def __init__(self, rate):
                    super().__init__()
                    self.save_hyperparameters()
                    self.layer = torch.nn.Linear(3, 1)
                def training_step(self, batch, batch_idx):
                    return self.layer(batch).square().mean()
                def configure_optimizers(self):
                    return torch.optim.SGD(self.parameters(), self.hparams.rate)
            trainer = Trainer(
                max_epochs=5, log_every_n_steps=5, accelerator="cpu", enable_progress_bar=False,
                enable_model_summary=False,
            )
            trainer.fit(Net(float(sys.argv[1])), [torch.randn(4, 3)] * 5)
            print(trainer.checkpoint_callback.best_model_path)
            """
        )
    )
    rates = (0.1, 0.01, 0.001)
    running = [
        warm_python.Popen(
            [sys.executable, "-W", "error", "train.py", str(rate)],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rate in rates
    ]
    best = [process.communicate()[0].strip() for process in running]
    assert [process.returncode for process in running] == [0, 0, 0]
    assert len({Path(path).parent for path in best}) == 3
    held = [torch.load(path, weights_only=True)["hyper_parameters"]["rate"] for path in best]
    assert held == list(rates)
    assert len(list((tmp_path / "trainer_logs").iterdir())) == 3
