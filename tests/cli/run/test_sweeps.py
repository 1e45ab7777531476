"""Trials that are killed or stopped go on from their checkpoints, and end as uncut ones."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import warm_python

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "sweeps-and-configs.md").read_text(encoding="utf-8")


def worker_of(title: str) -> str:
    """The code of a section of the page, with what it needs of the first one, less its runs."""
    blocks = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
    first = blocks.search(PAGE)[1].partition('Path("config.yaml")')[0]
    own = blocks.search(PAGE.partition(f"## {title}")[2])[1]
    return f"import os, sys\n{first}\n{own}"


@pytest.fixture
def optuna_worker(tmp_path) -> Path:
    """The page's study as a worker that runs one trial, and may wait in its middle to be killed."""
    pytest.importorskip("optuna", minversion="4.9")
    code = worker_of("With Optuna").partition("assert len(run_study(2)")[0]
    code += """
class Waits(OptunaPruning):
    def on_validation_end(self, trainer, module):
        super().on_validation_end(trainer, module)
        if "WAIT" in os.environ and not trainer.sanity_checking and trainer.current_epoch == 1:
            print("here", flush=True)
            sys.stdin.read()

OptunaPruning = Waits
if __name__ == "__main__":
    for folder in sys.argv[1:]:
        os.chdir(folder)
        for trial in run_study(1).trials:
            print("told", trial.state.name, trial.value, trial.params, trial.intermediate_values)
"""
    worker = tmp_path / "worker.py"
    worker.write_text(code)
    return worker


@pytest.mark.slow
def test_a_killed_trial_of_optuna_goes_on(optuna_worker: Path, tmp_path) -> None:
    """After SIGKILL of a worker the next one goes on with its trial, which ends as an uncut one."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    cut, uncut = tmp_path / "cut", tmp_path / "uncut"
    cut.mkdir()
    uncut.mkdir()
    run = [sys.executable, str(optuna_worker)]
    with warm_python.Popen(
        [*run, str(cut)], env={**environ, "WAIT": "1"}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        assert "here" in next(line for line in process.stdout if "here" in line)
        process.send_signal(signal.SIGKILL)
    # a heartbeat counts as stopped by the time in the study's file: this one is an hour old
    with contextlib.closing(sqlite3.connect(cut / "study.db")) as study, study:
        aged = study.execute(
            "UPDATE trial_heartbeats SET heartbeat = datetime(heartbeat, '-1 hour')"
        )
        assert aged.rowcount == 1
    again = warm_python.run(
        [*run, str(uncut), str(cut)], env=environ, capture_output=True, text=True, check=False
    )
    assert again.returncode == 0, again.stderr
    assert "resuming from" in again.stderr
    told = [line.split(maxsplit=2) for line in again.stdout.splitlines() if "told" in line]
    assert [words[1] for words in told] == ["COMPLETE", "FAIL", "COMPLETE"]
    assert told[0][2] == told[2][2]


RAY = """
class Dies(Report):
    def on_validation_end(self, trainer, module):
        super().on_validation_end(trainer, module)
        flag = os.environ["FLAG"]
        is_cut = not trainer.sanity_checking and trainer.current_epoch == 0
        if is_cut and flag and not os.path.exists(flag):
            open(flag, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)

Report = Dies
if __name__ == "__main__":
    ray.init(
        num_cpus=1, include_dashboard=False, log_to_driver=False,
        runtime_env={"env_vars": {"FLAG": os.path.abspath("flag")}},
    )
    tuner = tune.Tuner(
        train_trial,
        param_space={"lr": 0.1},
        run_config=tune.RunConfig(
            storage_path=os.path.abspath("tune"), verbose=0,
            failure_config=tune.FailureConfig(max_failures=1),
        ),
    )
    result = tuner.fit()[0]
    assert result.error is None, result.error
    with result.checkpoint.as_directory() as folder:
        cut = torch.load(f"{folder}/trial.ckpt", weights_only=True)
    ray.shutdown()
    assert os.path.exists("flag")
    uncut = TrainerCLI(
        Line, Batches, trainer_defaults={"max_epochs": 2, "enable_checkpointing": False},
        args={"fit": {"model": {"lr": 0.1}}},
    )
    assert cut["global_step"] == uncut.trainer.global_step == 16
    for name, value in uncut.model.state_dict().items():
        assert torch.equal(cut["state_dict"][name], value), name
    print("equal")
"""


@pytest.mark.exhaustive
def test_a_killed_trial_of_ray_goes_on(tmp_path) -> None:
    """A trial whose process is killed goes on from its checkpoint, and ends as an uncut one."""
    pytest.importorskip("ray.tune")
    data = "class Batches" + worker_of("With Optuna").partition("class Batches")[2]
    data = data.partition("\n\n\n")[0]
    ray = worker_of("With Ray Tune").partition("ray.init(")[0]
    known = "import signal\nfrom trainer_hooks import DataModule, TrainerCLI\n\n\n"
    worker = tmp_path / "worker.py"
    worker.write_text(ray.replace("import tempfile", f"{known}{data}\n\n\nimport tempfile") + RAY)
    done = warm_python.run(
        [sys.executable, str(worker)], cwd=tmp_path, text=True, capture_output=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "RAY_DISABLE_IMPORT_WARNING": "1"},
        timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "equal" in done.stdout
