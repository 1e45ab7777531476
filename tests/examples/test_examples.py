"""Each program of examples/ in its small form: cut in the middle and gone on with, as if uncut."""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
import warm_python
from launchers import slurm_job, unlaunched
from samples import one_in

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
NEEDS = {
    "finetune_lora": "peft", "finetune_transformer": "transformers", "ray_train": "ray",
    "streaming": "torchdata", "sweep": "optuna",
}  # fmt: skip
BERT = ("transformers.models.bert.modeling_bert", "transformers.models.auto.modeling_auto")
IMPORTS = {"finetune_lora": (*BERT, "peft"), "finetune_transformer": BERT}
"""The slow imports of a program, made once for all its starts, where they are others than most."""
SPOKEN_BY_OTHERS = {"finetune_lora", "finetune_transformer", "ray_train", "streaming"}
"""Programs whose other packages warn of their own doing."""

WITNESS = '''
"""A plugin that ends the process in the middle, and keeps what a fit ends with."""

import os
import signal
from pathlib import Path

import torch

from trainer_hooks import Callback

FOLDER = Path(os.environ["WITNESS"])


class Witness(Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        folder, _, batches = os.environ.get("CUT_AT", "").rpartition(":")
        flag = FOLDER / "cut"
        if not batches or trainer.global_rank != int(os.environ["CUT_RANK"]) or flag.exists():
            return
        progress = trainer.progress
        if progress.batches_completed == int(batches) and folder in trainer.default_root_dir:
            flag.touch()
            os.kill(os.getpid(), int(os.environ["CUT_BY"]))

    def on_fit_end(self, trainer, module):
        weights = module.state_dict()
        weights = {name: getattr(w, "to_local", lambda w=w: w)() for name, w in weights.items()}
        metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
        kept = {"weights": weights, "metrics": metrics, "steps": trainer.global_step}
        name = Path(trainer.default_root_dir).name
        torch.save(kept, FOLDER / f"{name}-{trainer.global_rank}.pt")


def callbacks():
    return [Witness()]
'''


class Program:
    """A program of examples/ in a folder of its own, with the witness among its plugins."""

    def __init__(self, folder: Path, name: str, *words: str) -> None:
        about = folder / "installed" / "witness-1.0.dist-info"
        about.mkdir(parents=True, exist_ok=True)
        (about.parent / "witness.py").write_text(WITNESS, encoding="utf-8")
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: witness\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text(
            "[trainer_hooks.callbacks_factory]\nwitness = witness:callbacks\n"
        )
        self.folder = folder
        self.name = name
        # every start has the same words, so that a second one goes on with the first
        self.command = [sys.executable, str(ROOT / "examples" / f"{name}.py"), *words]
        self.environ = {
            **{k: v for k, v in unlaunched().items() if not k.startswith("TRAINER_HOOKS_")},
            "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])),
            "PYTHONPATH": os.pathsep.join((str(about.parent), str(ROOT))),
            "TRAINER_HOOKS_ALLOW_PLUGINS": "witness,sample-count",
            "RAY_DISABLE_IMPORT_WARNING": "1", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
            "HF_HUB_OFFLINE": "1",
        }  # fmt: skip

    def start(self, run: str, **variables: str) -> tuple[int, str]:
        """Run it in the folder of this name; return its code and all that it printed."""
        folder = self.folder / run
        folder.mkdir(exist_ok=True)
        done = warm_python.run(
            self.command, cwd=folder, env={**self.environ, "WITNESS": str(folder), **variables},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, check=False,
            imports=IMPORTS.get(self.name, ("sklearn.datasets",)),
            forks_children=self.name == "plugin",
        )  # fmt: skip
        if self.name not in SPOKEN_BY_OTHERS:
            assert not re.search(r"Warning|Advice", done.stdout), done.stdout
        return done.returncode, done.stdout

    def succeed(self, run: str) -> str:
        """Run it to its end in the folder of this name; return all that it printed."""
        code, output = self.start(run)
        assert code == 0, output
        return output

    def cut(self, at: str, by: signal.Signals = signal.SIGKILL, rank: int = 0) -> tuple[int, str]:
        """Run it until a signal in the middle."""
        return self.start("cut", CUT_AT=at, CUT_BY=str(int(by)), CUT_RANK=str(rank))

    def kept(self, run: str) -> dict[str, dict]:
        """Return what each of its fits ended with, by folder and rank."""
        files = sorted((self.folder / run).glob("*.pt"))
        return {file.name: torch.load(file, weights_only=True) for file in files}

    def compare(self) -> None:
        """The cut fits ended with the same weights, metrics and steps."""
        whole, cut = self.kept("whole"), self.kept("cut")
        assert whole
        assert cut.keys() == whole.keys()
        for name, one in whole.items():
            assert cut[name]["steps"] == one["steps"] > 0
            assert cut[name]["metrics"] == one["metrics"]
            assert cut[name]["weights"].keys() == one["weights"].keys()
            for key, value in one["weights"].items():
                assert torch.equal(cut[name]["weights"][key], value), (name, key)


RUNS = {
    "image_classifier": (("--epochs", "2"), "47"),
    "finetune_transformer": (("--epochs", "2"), "27"),
    "finetune_lora": (("--epochs", "2"), "27"),
    "language_model": (("--epochs", "1"), "13"),
    "gan": (("--epochs", "2"), "37"),
    "policy_gradient": (("--steps", "16"), "12"),
    "tabular": (("--epochs", "3"), "33"),
    "gradual_unfreezing": (("--epochs", "3"), "finetuning:47"),
    "streaming": (("--epochs", "2"), "57"),
    "plugin": (("--epochs", "2"), "27"),
}
"""The words of the small form, and the batch at which it is cut, with a part of a fit's folder."""


def needed(name: str) -> None:
    if name in NEEDS and find_spec(NEEDS[name]) is None:
        pytest.skip(f"needs {NEEDS[name]}")


@pytest.mark.slow
@pytest.mark.parametrize("name", one_in(10, RUNS))
def test_a_killed_example_ends_as_an_uncut_one(name, tmp_path) -> None:
    """After SIGKILL in the middle of an epoch the same command goes on, to the same weights."""
    needed(name)
    words, at = RUNS[name]
    program = Program(tmp_path, name, *words)
    program.succeed("whole")
    code, output = program.cut(at)
    assert code in (-signal.SIGKILL, 256 - signal.SIGKILL, 128 + signal.SIGKILL), output
    assert (tmp_path / "cut" / "cut").exists()
    assert "resuming from" in program.succeed("cut")
    program.compare()


@pytest.mark.exhaustive
def test_a_sweep_with_a_killed_trial_goes_on(tmp_path) -> None:
    """The killed trial is told; the same command lets it go on, and shows the table of an uncut."""
    needed("sweep")
    program = Program(tmp_path, "sweep", "--rates", "1e-3,1e-2", "--widths", "8")
    whole = program.succeed("whole")
    _, output = program.cut("trial_1:41")
    assert "failed" in output
    output = program.succeed("cut")
    printed = (tmp_path / "cut/runs/sweep/trials/trial_1/output.txt").read_text(encoding="utf-8")
    assert "resuming from" in printed
    program.compare()
    # a trial that is run again has a number of its own
    rows = [re.findall(r"^\d (.*complete)", text, re.MULTILINE) for text in (whole, output)]
    assert rows[0] == rows[1] != []


SRUN = """#!/bin/bash
for rank in 0 1; do
    SLURM_PROCID=$rank SLURM_LOCALID=$rank "$@" &
    tasks+=($!)
done
code=0
for task in "${tasks[@]}"; do wait "$task" || code=$?; done
exit $code
"""


@pytest.mark.exhaustive
def test_the_job_of_slurm_is_queued_again_and_ends_as_an_uncut_one(tmp_path) -> None:
    """The batch script in bash, with two tasks; one gets the signal that SLURM would send."""
    program = Program(tmp_path, "slurm", "--script")
    script = program.succeed("whole")
    commands = tmp_path / "commands"
    commands.mkdir()
    for name, text in {"srun": SRUN, "scontrol": '#!/bin/bash\necho "$@" >> queued.txt\n'}.items():
        (commands / name).write_text(text, encoding="utf-8")
        (commands / name).chmod(0o755)
    (tmp_path / "train.sbatch").write_text(script, encoding="utf-8")
    program.command = ["bash", str(tmp_path / "train.sbatch")]
    program.environ |= {
        **slurm_job(), "PATH": f"{commands}{os.pathsep}{program.environ['PATH']}",
    }  # fmt: skip
    assert "started by SLURM because SLURM_NTASKS=2" in program.succeed("whole")
    code, output = program.cut("73", signal.SIGUSR1, rank=1)
    assert code == 128 + signal.SIGUSR1, output
    assert (tmp_path / "cut" / "queued.txt").read_text() == "requeue 77\n"
    assert "resuming from" in program.succeed("cut")
    program.compare()


@pytest.mark.exhaustive
def test_a_worker_of_ray_that_is_killed_comes_back(tmp_path) -> None:
    """Ray starts the workers again, which go on to the weights of uncut ones."""
    needed("ray_train")
    program = Program(tmp_path, "ray_train", "--epochs", "2")
    program.succeed("whole")
    code, output = program.cut("47", rank=1)
    assert code == 0, output
    assert "resuming from" in output
    program.compare()


def test_each_example_is_run_here() -> None:
    """No program of the folder is left out."""
    others = {"sweep", "slurm", "ray_train"}
    assert {path.stem for path in EXAMPLES} == {*RUNS, *others}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_can_be_read_on_a_page(path) -> None:
    """It has at most 150 lines, says on top what it is about, and holds no test."""
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    docstring = ast.get_docstring(ast.parse(text))
    assert re.match(r"[A-Z].{10,60}\.\n\n", docstring)
    assert 'ckpt_path="auto"' in text or "trainer-hooks sweep" in text
    assert not re.search(r"SIGKILL|pytest|WITNESS", text)


@pytest.mark.slow
def test_the_examples_have_a_help(tmp_path) -> None:
    """One that imports little says its title and its options."""
    output = Program(tmp_path, "ray_train", "--help").succeed("whole")
    assert "Train in the workers of Ray Train." in output
    assert "--epochs" in output
