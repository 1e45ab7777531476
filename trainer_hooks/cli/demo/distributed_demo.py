"""`trainer-hooks demo --processes 2`: train in several processes, kill one, resume, and compare."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks.checkpoint.file import read_checkpoint
from trainer_hooks.cli.checkpoint.tensor_comparison import compare_tensors, tensors_in
from trainer_hooks.cli.demo import digits
from trainer_hooks.cli.demo import distributed_training as ranks
from trainer_hooks.cli.demo.demo_report import compare_runs, show_ends, show_result
from trainer_hooks.cli.demo.training import FINAL, REPORT
from trainer_hooks.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from trainer_hooks.cli.screen import Screen

__all__ = ["run_distributed_demo"]

_EPOCHS, _KILL_EPOCH = 7, 3


def run_distributed_demo(screen: Screen, root: Path, processes: int) -> int:
    """Run the demo of several processes; the exit code is 0 only if every promise held.

    Args:
        screen: the output.
        root: the folder for all files; it holds the digits.
        processes: the number of ranks.

    Raises:
        UsageError: a run did not end as expected.
    """
    screen.heading(f"trainer-hooks demo, in {processes} processes")
    screen.text(
        f"Trains a small convolutional net on {digits.SIZES['train']:,} real images of handwritten "
        f"digits, {_EPOCHS} epochs, in {processes} processes that Trainer(devices={processes}) "
        "starts, each with its share of every batch. It does so twice: once in one go, and once "
        f"with a process that is killed in the middle of epoch {_KILL_EPOCH} (the first is 0), and "
        'started again. fit(ckpt_path="auto") finds by itself where to go on.'
    )
    screen.lines([f"All files go to {root}"])
    screen.heading("1. A run that nobody kills")
    _train(root / "uncut", processes)
    screen.heading("2. The same run, in which one process is killed")
    code = _train(root / "cut", processes, _KILL_EPOCH)
    screen.text(
        f"The other process noticed and ended, too, with exit code {code}: none is left waiting."
    )
    screen.heading("3. The same command once more")
    _train(root / "cut", processes)
    is_same = _compare(screen, root, processes)
    report = torch.load(root / "cut" / REPORT, weights_only=True)
    is_accurate = show_result(screen, report["test"]["test_acc"], report["best"], number=5)
    return 0 if is_same and is_accurate else 1


def _train(folder: Path, processes: int, kill_epoch: int | None = None) -> int:
    """Train in new processes and return the exit code of the first."""
    more = [] if kill_epoch is None else [str(kill_epoch)]
    command = [
        sys.executable, "-m", ranks.__name__, str(folder), str(processes), str(_EPOCHS), *more,
    ]  # fmt: skip
    # one thread each, as everywhere in the demo: more make a net as small as this one no faster
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    code = subprocess.run(command, check=False, env=environ).returncode
    if code == 130:
        raise KeyboardInterrupt
    if bool(code) is (kill_epoch is None):
        raise UsageError(f"the processes in {str(folder)!r} ended with exit code {code}.")
    return code


def _compare(screen: Screen, root: Path, processes: int) -> bool:
    """Print whether both runs ended in the same state, and return the result."""
    screen.heading("4. Is it the same run?")
    end = read_checkpoint(root / "cut" / FINAL)
    reference = read_checkpoint(root / "uncut" / FINAL)
    comparisons = compare_runs(end, reference)
    others = "of the other rank" if processes == 2 else "of the other ranks"
    comparisons[others] = compare_tensors(_of_others(reference), _of_others(end))
    show_ends(screen, comparisons)
    is_same = all(comparison.is_equal for comparison in comparisons.values())
    screen.verdict(
        "The run that was killed is the run that was not, to the last bit."
        if is_same
        else "The run that was killed is NOT the run that was not. Please report this.",
        is_good=is_same,
    )
    return is_same


def _of_others(checkpoint: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Return the other ranks' state in rank 0's checkpoint: random states and average losses."""
    parts = checkpoint["trainer_hooks"]["processes"]
    return tensors_in({str(rank): part for rank, part in enumerate(parts) if rank})
