"""A loop by Run in a notebook's cells and in a process that is interrupted."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
import warm_python

ROOT = Path(__file__).parents[2]

SETUP = """
import os, signal, torch
from torch import nn
from trainer_hooks import Run
torch.manual_seed(0)
net = nn.Linear(2, 1)
batches = [torch.randn(2, 2) for _ in range(4)]
run = Run(
    net, torch.optim.SGD(net.parameters(), lr=0.1), max_epochs=3, accelerator="cpu", logger=False,
    plugins=False, enable_progress_bar=False, enable_model_summary=False,
    enable_checkpointing=False,
)
seen, interrupts_at = [], {5, 9}
def train(batch):
    run.backward(net(batch).square().mean())
    run.step()
    seen.append((run.progress.epochs_completed, run.progress.batches_in_epoch))
    if len(seen) in interrupts_at:
        os.kill(os.getpid(), signal.SIGINT)
"""
LOOP = """
for epoch in run.epochs():
    for batch in run.batches(batches):
        train(batch)
"""


@pytest.fixture
def shell(handlers):
    """IPython's shell, as a kernel has one."""
    interactive = pytest.importorskip("IPython.core.interactiveshell")
    made = interactive.InteractiveShell.instance()
    yield made
    interactive.InteractiveShell.clear_instance()


def execute(shell, cell: str, error: type[BaseException] | None = None) -> None:
    """Execute a cell, which ends with such an error."""
    result = shell.run_cell(cell)
    found = result.error_before_exec or result.error_in_exec
    assert (found is None) if error is None else isinstance(found, error), found


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_an_interrupted_cell_goes_on_with_its_next_batch(shell, capsys) -> None:
    """The kernel's interrupt ends a cell after its batch; executed again it takes the next."""
    execute(shell, SETUP)
    execute(shell, "run.open()")
    execute(shell, LOOP, KeyboardInterrupt)
    assert shell.user_ns["seen"][-1] == (1, 0)
    execute(shell, LOOP, KeyboardInterrupt)
    execute(shell, LOOP)
    execute(shell, "run.close()")
    assert shell.user_ns["seen"] == [(epoch, batch) for epoch in range(3) for batch in range(4)]
    assert shell.user_ns["run"].progress.steps_completed == 12


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_with_in_a_cell_is_executed_again(shell, capsys) -> None:
    """A cell with the whole `with run:` begins again with the epoch that was interrupted."""
    cell = "with run:" + LOOP.replace("\n", "\n    ")
    execute(shell, SETUP)
    execute(shell, cell, KeyboardInterrupt)
    assert shell.user_ns["seen"][-1] == (1, 0)
    execute(shell, "interrupts_at.clear()")
    execute(shell, cell)
    assert shell.user_ns["seen"][5:] == [(e, b) for e in (1, 2) for b in range(4)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, -signal.SIGINT)]
)
def test_a_signal_leaves_a_checkpoint_that_goes_on(number, code, tmp_path) -> None:
    """SIGTERM saves and exits with its code, Ctrl-C ends the process; "auto" goes on after both."""
    program = tmp_path / "train.py"
    program.write_text(
        SETUP.replace("enable_checkpointing=False,", 'ckpt_path="auto", callbacks=saver,')
        .replace(
            "run = Run(",
            "from trainer_hooks.callbacks import ModelCheckpoint\n"
            "saver = ModelCheckpoint('saved', every_n_train_steps=1)\nrun = Run(",
        )
        .replace("signal.SIGINT", f"signal.{signal.Signals(number).name}")
        .replace("{5, 9}", "{5}")
        + "with run:"
        + LOOP.replace("\n", "\n    ")
        + "\nprint('seen', len(seen), seen[0])\n"
    )
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = [
        warm_python.run(
            [sys.executable, str(program)], cwd=tmp_path, env=environ, capture_output=True,
            text=True, timeout=100, check=False,
        )
        for _ in range(2)
    ]  # fmt: skip
    assert ended[0].returncode == code, ended[0].stderr
    assert "stopping after this batch" in ended[0].stderr
    # the second process has its own fifth batch, which is the tenth
    assert ended[1].returncode == code, ended[1].stderr
    third = warm_python.run(
        [sys.executable, str(program)], cwd=tmp_path, env=environ, capture_output=True, text=True,
        timeout=100, check=False,
    )  # fmt: skip
    assert "seen 2 (2, 2)" in third.stdout, third.stdout + third.stderr
