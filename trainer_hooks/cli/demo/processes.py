"""`trainer-hooks demo --processes 2`: train in several, kill one, go on, and compare."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks.checkpoint import read_checkpoint
from trainer_hooks.cli.checkpoint.compare import compare, tensors_in
from trainer_hooks.cli.demo import digits, ranks
from trainer_hooks.cli.demo.report import compare_runs, show_ends, show_result
from trainer_hooks.cli.demo.run import FINAL, REPORT
from trainer_hooks.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from trainer_hooks.cli.screen import Screen

__all__ = ["run_processes"]

_EPOCHS, _KILL_EPOCH = 7, 3


def run_processes(screen: Screen, root: Path, processes: int) -> int:
    """Run this demo and return its exit code: 0 only if all that it promises came true.

    Args:
        screen: where to show it.
        root: a folder for all files, in which the digits are.
        processes: how many train together.

    Raises:
        UsageError: a run did not end as it was to.
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
    """Train in new processes; return the exit code of the first."""
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
    """Show whether both runs came to the same end, and return it."""
    screen.heading("4. Is it the same run?")
    end = read_checkpoint(root / "cut" / FINAL)
    reference = read_checkpoint(root / "uncut" / FINAL)
    comparisons = compare_runs(end, reference)
    others = "of the other rank" if processes == 2 else "of the other ranks"
    comparisons[others] = compare(_of_others(reference), _of_others(end))
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
    """Return what rank 0's file has of the others: random numbers, averages of their losses."""
    parts = checkpoint["trainer_hooks"]["processes"]
    return tensors_in({str(rank): part for rank, part in enumerate(parts) if rank})
