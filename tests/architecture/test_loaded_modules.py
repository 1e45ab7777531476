"""How much of the package is loaded for what: counted, so that it cannot creep up unseen."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROBE = """
import json, re, sys

def ours():
    return sorted(name for name in sys.modules if name.split(".")[0] == "trainer_hooks")

import torch
before, counts, patterns = set(sys.modules), {"lines": 0, "compiled": 0}, []

def count(frame, event, argument):
    # not those that look for files: they depend on the folders of packages that there are
    if "importlib" in frame.f_code.co_filename:
        return None
    counts["lines"] += event == "line"
    return count

def hear(event, arguments):
    counts["compiled"] += is_counted and event == "compile"

def compile_pattern(pattern, flags=0, compile=re._compiler.compile):
    patterns.append(str(pattern))
    return compile(pattern, flags)

sys.addaudithook(hear)
usual, re._compiler.compile = re._compiler.compile, compile_pattern
is_counted = True
sys.settrace(count)
from trainer_hooks import Callback, Module, Trainer
sys.settrace(None)
is_counted = False
re._compiler.compile = usual

seen = {**counts, "patterns": patterns, "import": ours(), "others": sorted(
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
    "adapters", "compat", "callbacks.progress", "callbacks.saving", "callbacks.model_summary",
    "callbacks.reporting", "checkpoint.file", "checkpoint.lightning", "checkpoint.encoding",
    "checkpoint.hparams", "connector.plugin_validation", "connector.adapter_lookup",
    "data.evaluator", "data.index_recorder", "data.batch_splitting", "hooks.discovery",
    "hooks.profile", "hooks.loop_tree", "loggers.csv", "loggers.guard", "loops.closure_step",
    "loops.evaluator_schedule", "loops.manual_step", "loops.microbatches", "loops.prediction",
    "loops.extra_passes",  "metrics.microbatches", "runtime.state_backup",
    "trainer.description", "trainer.restoring.lightning_checkpoint",
    "trainer.restoring.checkpoint_restorer",
    "trainer.run.checkpoint_saving", "trainer.run.trial", "trainer.tuner",
]  # fmt: skip
"""What a bare fit has no use for; each is a file or a folder of files."""

STAGES = """
import json, sys
import torch

before = set(sys.modules)
from trainer_hooks import Module, Trainer
from trainer_hooks.callbacks import ModelCheckpoint

class Net(Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch, batch_idx):
        return self.layer(batch).mean()

    validation_step = predict_step = training_step

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

def run(stage, *callbacks, **options):
    trainer = Trainer(
        accelerator="cpu", enable_progress_bar=False, enable_model_summary=False, logger=False,
        max_epochs=1, plugins=False, default_root_dir=sys.argv[1], callbacks=list(callbacks),
        enable_checkpointing=bool(callbacks),
    )
    getattr(trainer, stage)(Net(), [torch.ones(1, 2)] * 2, **options)

for stage in ("predict", "validate", "fit"):
    if stage == "fit":
        run("fit", ModelCheckpoint(dirpath=sys.argv[1], filename="saved"))
        run("fit", ckpt_path=f"{sys.argv[1]}/saved.ckpt")
    else:
        run(stage)
    print(json.dumps(sorted(set(sys.modules) - before)))
"""
"""The stages in one process, and the modules that it has loaded after each of them."""


@pytest.fixture(scope="module")
def loaded() -> dict:
    """The modules that a fresh interpreter holds after each step of a bare training."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_the_import_loads_few_modules(loaded: dict) -> None:
    """What a training script imports first loads no more than 60 modules, and of us alone."""
    assert len(loaded["import"]) <= 60
    assert loaded["others"] == ["trainer_hooks"]


@pytest.mark.slow
def test_the_import_executes_little(loaded: dict) -> None:
    """The import executes few lines of Python, and compiles neither patterns nor many methods.

    Half of the lines, and nearly all that is compiled, are methods that `dataclass` makes.
    """
    assert loaded["lines"] <= 60_500
    assert loaded["compiled"] <= 130
    assert loaded["patterns"] == []


@pytest.mark.slow
def test_a_trainer_loads_few_modules_more(loaded: dict) -> None:
    """A first trainer without a bar and a summary has loaded at most 100, none of those two."""
    assert len(loaded["trainer"]) <= 100
    assert not [name for name in loaded["trainer"] if name.startswith("trainer_hooks.callbacks")]


@pytest.mark.slow
@pytest.mark.parametrize("unused", UNUSED)
def test_a_fit_loads_nothing_that_it_does_not_use(loaded: dict, unused: str) -> None:
    """Evaluators, microbatches, checkpoints and the like are imported where they are needed."""
    name = f"trainer_hooks.{unused}"
    assert (ROOT / (name.replace(".", "/") + ".py")).exists() or (
        ROOT / name.replace(".", "/")
    ).is_dir()
    assert not [found for found in loaded["fit"] if f"{found}.".startswith(f"{name}.")]


COMPILER = """
import gc, json, os, sys
import torch
from trainer_hooks.module.optimization import import_compiler

child = os.fork()  # both import it for the first time
looks = []
gc.callbacks.append(lambda phase, info: looks.append(info["generation"]))
if child:
    os.waitpid(child, 0)
else:
    gc.disable()
looks.clear()
import_compiler()
print(json.dumps([looks, "torch._dynamo" in sys.modules, gc.isenabled()]), flush=True)
os._exit(0)
"""


@pytest.mark.exhaustive
def test_the_compiler_is_imported_without_a_look_for_garbage() -> None:
    """Its million objects stay, and looking through them would delay the first step.

    So it is with garbage collection enabled and disabled, each of which stays as it is.
    """
    done = subprocess.run(
        [sys.executable, "-c", COMPILER],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    disabled, enabled = map(json.loads, done.stdout.splitlines())
    for looks, is_imported, _ in (disabled, enabled):
        assert is_imported
        # begun before the import, or after it
        assert len(looks) <= 2
    assert (disabled[2], enabled[2]) == (False, True)


@pytest.mark.slow
def test_one_process_loads_nothing_for_several(tmp_path: Path) -> None:
    """One process does not load torch.distributed.checkpoint, which are some 700 modules.

    A fit is checked with its checkpoint, and with a resume from it.
    """
    done = subprocess.run(
        [sys.executable, "-c", STAGES, str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    # a run says where its files are
    lines = [line for line in done.stdout.splitlines() if line.startswith('["')]
    predict, validate, fit = map(json.loads, lines)
    sharded = ("torch.distributed.checkpoint", "trainer_hooks.checkpoint.sharded_folder")
    assert not [name for name in fit if name.startswith(sharded)]
    # in a fit, torch itself loads its compiler for the optimizer
    assert not [name for name in (*predict, *validate) if name.startswith("torch.")]
