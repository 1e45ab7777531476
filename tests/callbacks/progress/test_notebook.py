"""The bars in the shell of a notebook, whose widgets and outputs are looked at."""

from __future__ import annotations

import json
import os
import sys

import pytest
import warm_python

pytest.importorskip("IPython")
pytest.importorskip("ipywidgets")
pytestmark = pytest.mark.slow  # each test starts a shell that imports torch

PROGRAM = """
import json, sys
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from traitlets.config import Config

# a kernel has this entry in its configuration; its outputs are messages and its stdout no terminal
shell = InteractiveShell.instance(config=Config({"IPKernelApp": {"connection_file": "none"}}))
type(shell).__name__ = "ZMQInteractiveShell"
shell.run_cell(CELL)
from trainer_hooks import callbacks
with capture_output() as captured:
    result = shell.run_cell(FIT)
result.raise_error()
found = {
    "out": captured.stdout,
    "bars": shell.user_ns["bars"], "shown": len(captured.outputs),
}
sys.__stdout__.write("\\n" + json.dumps(found))
"""
CELL = """
import torch
from torch.utils.data import DataLoader
from trainer_hooks import Module, Trainer
from trainer_hooks.callbacks import *

bars = []

class Line(Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, batch_idx):
        look(self)
        if batch_idx == 2:
            print("said")
        self.log("loss", 1.0, prog_bar=True)
        return self.layer(batch).pow(2).mean()
    def validation_step(self, batch, batch_idx):
        look(self)
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

def look(module):
    bar = module.trainer.progress_bar_callback
    for name in ("train_progress_bar", "val_progress_bar"):
        try:
            drawn = getattr(bar, name)
        except Exception:
            continue
        if hasattr(drawn, "container"):
            left, middle, right = drawn.container.children
            bars.append([name, left.value, middle.value, middle.max, right.value])
        elif hasattr(drawn, "completed"):
            bars.append([name, drawn.description, drawn.completed, drawn.total, ""])

def fit(bar, epochs=2):
    trainer = Trainer(max_epochs=epochs, callbacks=[bar], logger=False, plugins=False,
        accelerator="cpu", enable_model_summary=False, enable_checkpointing=False,
        num_sanity_val_steps=0)
    data = DataLoader(torch.ones(6, 4), batch_size=1)
    trainer.fit(Line(), data, data)
"""


def in_a_shell(tmp_path, fit):
    """Run a cell in a shell such as a notebook's kernel has; return what came of it."""
    file = tmp_path / "shell.py"
    file.write_text(f"CELL = {CELL!r}\nFIT = {fit!r}\n{PROGRAM}")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    environment["IPYTHONDIR"] = str(tmp_path / "ipython")
    done = warm_python.run(
        [sys.executable, str(file)], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1].replace("\\u2007", " "))  # tqdm's spaces


def test_tqdm_bars_are_widgets(tmp_path):
    """In a notebook the bars are widgets with the right counts, and text stays text."""
    found = in_a_shell(tmp_path, "fit(TQDMProgressBar())")
    train = [bar for bar in found["bars"] if bar[0] == "train_progress_bar"]
    assert {bar[3] for bar in train} == {6}
    assert train[-1][1].startswith("Epoch 1/1")
    assert train[-1][2] == 6
    assert "loss=1" in train[-1][4]
    nested = [bar for bar in found["bars"] if bar[0] == "val_progress_bar"]
    assert {(bar[1].split(":")[0], bar[3]) for bar in nested} == {("Validation", 6)}
    assert found["out"] == "said\n" * 2
    assert found["shown"] >= 1 + 2  # one for the epochs and one for each validation


def test_without_widgets_each_epoch_is_a_line(tmp_path):
    """A cell cannot be drawn over as a terminal can: a bar below another would leave fragments."""
    cell = "import sys\nsys.modules['ipywidgets'] = None\nfit(TQDMProgressBar())"
    lines = in_a_shell(tmp_path, cell)["out"]
    assert "\r" not in lines
    assert "\x1b" not in lines
    epochs = [line.partition(" [")[0] for line in lines.splitlines() if line != "said"]
    assert epochs == ["Epoch 0/1: 6/6", "Epoch 1/1: 6/6"]
    assert lines.count("said") == 2


def test_rich_bars_are_shown(tmp_path):
    """In a notebook rich shows its bars as an output of the cell, and text stays text."""
    found = in_a_shell(tmp_path, "fit(RichProgressBar())")
    train = [bar for bar in found["bars"] if bar[0] == "train_progress_bar"]
    assert {bar[3] for bar in train} == {6}
    assert train[-1][2] == 6
    assert found["shown"] >= 1
    assert found["out"].count("said") == 2
