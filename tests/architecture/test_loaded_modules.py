"""How much of the package is loaded for what: counted, so that it cannot creep up unseen."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROBE = """
import json, sys

def ours():
    return sorted(name for name in sys.modules if name.split(".")[0] == "trainer_hooks")

import torch
before = set(sys.modules)
from trainer_hooks import Callback, Module, Trainer

seen = {"import": ours(), "others": sorted(
    {name.partition(".")[0] for name in set(sys.modules) - before} - sys.stdlib_module_names
)}
OFF = dict(
    accelerator="cpu", enable_progress_bar=False, enable_model_summary=False, logger=False,
    enable_checkpointing=False, max_epochs=1, plugins=False,
)
trainer = Trainer(**OFF)
seen["trainer"] = ours()

class Net(Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch, batch_idx):
        return self.layer(batch).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

trainer.fit(Net(), [torch.ones(1, 2)] * 2)
trainer.close()
seen["fit"] = ours()
print(json.dumps(seen))
"""
UNUSED = [
    "adapters", "compat", "callbacks.progress", "callbacks.saving", "callbacks.summary",
    "callbacks.reporting",
    "checkpoint.file", "checkpoint.lightning", "checkpoint.encoding", "checkpoint.hparams",
    "connector.admission", "connector.adoption", "data.evaluator", "data.indices",
    "data.splitting", "hooks.discovery",
    "hooks.installation", "hooks.profile", "hooks.tree", "loggers.csv", "loggers.guard",
    "loops.closure_step", "loops.evaluators", "loops.manual_step", "loops.microbatches",
    "loops.prediction", "loops.replay", "loops.second_validation", "loops.stored_cue",
    "metrics.microbatches", "runtime.memento", "trainer.description", "trainer.run.adoption",
    "trainer.run.contents", "trainer.run.restoring", "trainer.run.snapshot", "trainer.run.trial",
    "trainer.tuner",
]  # fmt: skip
"""What a bare fit has no use for; each is a file or a folder of files."""


@pytest.fixture(scope="module")
def loaded() -> dict:
    """The modules that a fresh interpreter holds after each step of a bare training."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_import_loads_few_modules(loaded: dict) -> None:
    """What a training script imports first loads no more than 70 modules, and of us alone."""
    assert len(loaded["import"]) <= 70
    assert loaded["others"] == ["trainer_hooks"]


def test_a_trainer_loads_few_modules_more(loaded: dict) -> None:
    """A first trainer without a bar and a summary has loaded at most 100, none of those two."""
    assert len(loaded["trainer"]) <= 100
    assert not [name for name in loaded["trainer"] if name.startswith("trainer_hooks.callbacks")]


@pytest.mark.parametrize("unused", UNUSED)
def test_a_fit_loads_nothing_that_it_does_not_use(loaded: dict, unused: str) -> None:
    """Evaluators, microbatches, checkpoints and the like are imported where they are needed."""
    name = f"trainer_hooks.{unused}"
    assert (ROOT / (name.replace(".", "/") + ".py")).exists() or (
        ROOT / name.replace(".", "/")
    ).is_dir()
    assert not [found for found in loaded["fit"] if f"{found}.".startswith(f"{name}.")]
