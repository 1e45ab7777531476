"""`trainer-hooks demo`: train, interrupt or kill, resume in a new process, and compare."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks._names import ours
from trainer_hooks._text import printable_lines
from trainer_hooks.callbacks.saving.model_checkpoint import ModelCheckpoint
from trainer_hooks.checkpoint.file import read_checkpoint
from trainer_hooks.cli.commands import is_free
from trainer_hooks.cli.demo import digits
from trainer_hooks.cli.demo import training as demo_run
from trainer_hooks.cli.demo.comparison import (
    compare_runs,
    compare_states,
    compare_tensors,
    tensors_in,
)
from trainer_hooks.cli.demo.demo_report import (
    PRINTS,
    Screen,
    show_callbacks,
    show_comparison,
    show_ends,
    show_result,
)
from trainer_hooks.cli.demo.digits import DigitsData, DigitsNet
from trainer_hooks.cli.demo.training import FINAL, REPORT, CtrlC, make_trainer
from trainer_hooks.runtime.rng import seed_everything

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainer_hooks.trainer.trainer import Trainer

_SEED = 0


@dataclass(frozen=True, slots=True)
class _DemoLength:
    """The number of epochs of the demo, and the epoch in which it interrupts itself."""

    epochs: int
    cut_epoch: int


_FAST = _DemoLength(epochs=7, cut_epoch=3)
_FULL = _DemoLength(epochs=14, cut_epoch=8)


class _DemoError(Exception):
    """An error that stops the demo, with a message for its user."""


def run_demo(folder: Path | None = None, *, is_fast: bool = False, processes: int = 1) -> int:
    """Run the demo and return its exit code: 0 only if all that it promises came true.

    ::

        train a run that is never interrupted
        train the same run, until SIGINT in the middle of an epoch
        resume it from the checkpoint in a new process
        compare weights, optimizer, random numbers and callback states; show the test accuracy

    Args:
        folder: an empty or new folder for all files; `demo_runs/<date-time>` unless given.
        is_fast: train fewer epochs.
        processes: train in so many instead, of which one is killed.
    """
    screen = Screen()
    try:
        if processes > 1:
            root = _new_folder(folder)
            _prepare(DigitsData(root))
            return _run_distributed(screen, root, processes)
        with demo_run.single_threaded(), _printing_plugin():
            return _run(screen, folder, _FAST if is_fast else _FULL)
    except _DemoError as error:
        print(f"trainer-hooks demo: {printable_lines(error)}", file=sys.stderr)
        return 1


@contextmanager
def _printing_plugin() -> Iterator[None]:
    """Let the example plugin print inside the context, here and in the resuming process."""
    before = os.environ.get(PRINTS)
    os.environ[PRINTS] = before or "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[PRINTS]


def _run(screen: Screen, folder: Path | None, plan: _DemoLength) -> int:
    root = _new_folder(folder)
    data = DigitsData(root)
    _prepare(data)
    _introduce(screen, root, plan)
    uncut = make_trainer(root / "uncut", plan.epochs, enable_model_summary=True)
    show_callbacks(screen, uncut)
    screen.heading("2. A run that is never interrupted")
    seed_everything(_SEED, verbose=False)
    with uncut:
        uncut.fit(DigitsNet(), datamodule=data)
        uncut.save_checkpoint(root / "uncut" / demo_run.FINAL)
    checkpoint = _interrupted(screen, root / "cut", plan, data)
    _resume(screen, checkpoint, root / "cut", plan)
    report = torch.load(root / "cut" / demo_run.REPORT, weights_only=True)
    is_same = _compare(screen, root, checkpoint, report["states"], uncut)
    is_accurate = show_result(screen, report["test"]["test_acc"], report["best"])
    return 0 if is_same and is_accurate else 1


def _new_folder(wanted: Path | None) -> Path:
    """Return the absolute path of a folder that is empty or does not exist."""
    if wanted is None:
        wanted = Path("demo_runs", datetime.now().astimezone().strftime("%Y-%m-%d_%H%M%S"))
    if not is_free(wanted):
        raise _DemoError(
            f"--dir {str(wanted)!r} is no empty folder, and nothing is ever written over: name a "
            "new one."
        )
    return wanted.absolute()


def _prepare(data: DigitsData) -> None:
    try:
        data.prepare_data()
    except ModuleNotFoundError as error:
        if error.name not in ("sklearn", "numpy"):
            raise
        raise _DemoError(
            f"the digits come with scikit-learn, and {error.name} is not installed: "
            'pip install "trainer-hooks[demo]"'
        ) from error
    except OSError as error:
        raise _DemoError(f"{str(data.file)!r} cannot be written: {error}.") from error


def _introduce(screen: Screen, root: Path, plan: _DemoLength) -> None:
    screen.heading("trainer-hooks demo")
    sizes = digits.SIZES
    screen.text(
        f"Trains a small convolutional net on {sum(sizes.values()):,} real images of handwritten "
        f"digits ({sizes['train']:,} to train, {sizes['val']} to validate, {sizes['test']} to "
        f"test), {plan.epochs} epochs, with shuffling and dropout. It does so twice: once in one "
        f"go, and once interrupted in the middle of epoch {plan.cut_epoch} (the first is 0) "
        "and resumed in a new process. Then it compares the two."
    )
    screen.lines([f"All files go to {root}"])


def _interrupted(screen: Screen, folder: Path, plan: _DemoLength, data: DigitsData) -> str:
    """Train until the demo sends itself Ctrl-C, and return the path of the saved checkpoint."""
    screen.heading("3. The same run, interrupted in the middle of an epoch")
    ctrl_c = CtrlC(plan.cut_epoch)
    # shells let a job in the background ignore Ctrl-C, and so the demo's own
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    seed_everything(_SEED, verbose=False)
    with make_trainer(folder, plan.epochs, ctrl_c) as trainer:
        try:
            trainer.fit(DigitsNet(), datamodule=data)
        except KeyboardInterrupt:
            if not ctrl_c.has_fired:  # that was you
                raise
        else:
            raise _DemoError("the run was to be interrupted by SIGINT, but went through.")
        saver = trainer.checkpoint_callback
        assert isinstance(saver, ModelCheckpoint)
        screen.text(
            f"KeyboardInterrupt left fit after {trainer.progress.batches_completed} batches, "
            f"{trainer.progress.batches_in_epoch} of them in epoch {trainer.current_epoch}. The "
            "checkpoint of that moment:"
        )
        screen.lines([f"  {saver.last_exception_path}"])
        return saver.last_exception_path


def _resume(screen: Screen, checkpoint: str, folder: Path, plan: _DemoLength) -> None:
    """Resume a run in a new process and train it to its end.

    Raises:
        _DemoError: that process failed.
    """
    screen.heading("4. Resumed in a new process")
    program = ["-m", demo_run.__name__, "resume", checkpoint, str(folder), str(plan.epochs)]
    # a new process, so that nothing but the checkpoint can carry the state
    code = subprocess.run([sys.executable, *program], check=False).returncode
    if code:
        raise _DemoError(f"the process that was to resume the run failed with exit code {code}.")


def _compare(
    screen: Screen, root: Path, checkpoint: str, restored: dict[str, Any], uncut: Trainer
) -> bool:
    """Print whether both runs ended in the same state, and return the result."""
    cut = read_checkpoint(checkpoint)
    end = read_checkpoint(root / "cut" / demo_run.FINAL)
    reference = read_checkpoint(root / "uncut" / demo_run.FINAL)
    keys = {type(c).__name__: c.state_key for c in uncut.callbacks if ours(c).is_stateful}
    rows = compare_states(
        keys, cut["callbacks"], restored, end["callbacks"], reference["callbacks"]
    )
    contrast = compare_tensors(cut["state_dict"], reference["state_dict"])
    return show_comparison(
        screen, compare_runs(end, reference), rows, contrast=len(contrast.differing)
    )


_RANK_EPOCHS, _KILL_EPOCH = 7, 3


def _run_distributed(screen: Screen, root: Path, processes: int) -> int:
    """Run the demo of several processes; the exit code is 0 only if every promise held.

    Args:
        screen: the output.
        root: the folder for all files; it holds the digits.
        processes: the number of ranks.

    Raises:
        _DemoError: a run did not end as expected.
    """
    screen.heading(f"trainer-hooks demo, in {processes} processes")
    screen.text(
        f"Trains a small convolutional net on {digits.SIZES['train']:,} real images of handwritten "
        f"digits, {_RANK_EPOCHS} epochs, in {processes} processes that Trainer(devices="
        f"{processes}) starts, each with its share of every batch. It does so twice: once in one "
        "go, and once with a process that is killed in the middle of epoch "
        f"{_KILL_EPOCH} (the first is 0), and started again. "
        'fit(ckpt_path="auto") finds by itself where to go on.'
    )
    screen.lines([f"All files go to {root}"])
    screen.heading("1. A run that nobody kills")
    _train_ranks(root / "uncut", processes)
    screen.heading("2. The same run, in which one process is killed")
    code = _train_ranks(root / "cut", processes, _KILL_EPOCH)
    screen.text(
        f"The other process noticed and ended, too, with exit code {code}: none is left waiting."
    )
    screen.heading("3. The same command once more")
    _train_ranks(root / "cut", processes)
    is_same = _compare_ranks(screen, root, processes)
    report = torch.load(root / "cut" / REPORT, weights_only=True)
    is_accurate = show_result(screen, report["test"]["test_acc"], report["best"], number=5)
    return 0 if is_same and is_accurate else 1


def _train_ranks(folder: Path, processes: int, kill_epoch: int | None = None) -> int:
    """Train in new processes and return the exit code of the first."""
    more = [] if kill_epoch is None else [str(kill_epoch)]
    program = ["-m", demo_run.__name__, "train", str(folder), str(processes), str(_RANK_EPOCHS)]
    # one thread each, as everywhere in the demo: more make a net as small as this one no faster
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    code = subprocess.run([sys.executable, *program, *more], check=False, env=environ).returncode
    # Ctrl-C reached the processes, which share the terminal: the demo ends as they did
    if code == 130:
        raise KeyboardInterrupt
    if bool(code) is (kill_epoch is None):
        raise _DemoError(f"the processes in {str(folder)!r} ended with exit code {code}.")
    return code


def _compare_ranks(screen: Screen, root: Path, processes: int) -> bool:
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
