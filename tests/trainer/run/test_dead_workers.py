"""A loader's worker process that dies: torch raises an error wherever the main process is."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

from trainer_hooks import Callback
from trainer_hooks.callbacks import ModelCheckpoint
from trainer_hooks.checkpoint import atomic_write
from trainer_hooks.data.workers import explain_worker_death
from trainer_hooks.errors import is_interruption

pytestmark = pytest.mark.skipif(
    not hasattr(signal, "SIGCHLD"), reason="torch watches its workers by a signal of POSIX"
)


def kill_worker() -> None:
    """Kill a worker of the loader that is open; torch's handler raises before this returns."""
    (worker,) = multiprocessing.active_children()
    os.kill(worker.pid, signal.SIGKILL)
    # WNOWAIT leaves the process to torch's handler, which asks how it ended
    os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)
    pytest.fail("torch's handler of SIGCHLD has raised nothing")


@pytest.fixture
def loader():
    """A loader of eight batches with one worker, which is alive until the last of them is taken."""
    return DataLoader(torch.ones(16, 2), 2, num_workers=1, prefetch_factor=1)


class KillsWorker(Callback):
    """Kill the worker in a hook, after the second batch."""

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if batch_idx == 1:
            kill_worker()


def notes_of(error: BaseException) -> str:
    return "\n".join(error.__notes__)


def test_a_hook_is_not_blamed_for_a_worker_that_was_killed(quiet_trainer, Tiny, loader) -> None:
    """The error has a note that names the cause, says that the hook is not at fault, and a cure."""
    with pytest.raises(RuntimeError, match="is killed by signal: Killed") as info:
        quiet_trainer(callbacks=[KillsWorker()]).fit(Tiny(), loader)
    assert is_interruption(info.value)
    notes = notes_of(info.value)
    assert "raised in hook 'on_train_batch_end' of callback KillsWorker" in notes
    assert "a worker process of a DataLoader was ended by a signal (Killed)" in notes
    assert "a hook, callback or batch that is named here is not at fault" in notes
    assert "take a smaller num_workers" in notes


def test_in_an_evaluation(quiet_trainer, Tiny, loader) -> None:
    """The note is there in a run of any kind."""

    class Kills(Tiny):
        def validation_step(self, batch, batch_idx):
            kill_worker()

    with pytest.raises(RuntimeError, match="is killed by signal: Killed") as info:
        quiet_trainer().validate(Kills(), loader)
    assert "was ended by a signal (Killed)" in notes_of(info.value)


def test_a_callback_whose_errors_disable_it_stays_on(quiet_trainer, Tiny, loader) -> None:
    """No policy for a callback's errors takes this one away: the run could not go on."""

    class Lenient(KillsWorker):
        on_error = "disable"

    with pytest.raises(RuntimeError, match="is killed by signal: Killed"):
        quiet_trainer(callbacks=[Lenient()]).fit(Tiny(), loader)


class TorchIO:
    """A `CheckpointIO` in which the worker is killed in the second save."""

    def __init__(self) -> None:
        self.saves = 0

    def save_checkpoint(self, checkpoint, path, storage_options=None):
        self.saves += 1
        if self.saves == 2:
            kill_worker()
        torch.save(checkpoint, path)

    def load_checkpoint(self, path, map_location=None):
        return torch.load(path, weights_only=True)

    def remove_checkpoint(self, path):
        Path(path).unlink()


@pytest.mark.parametrize("is_custom", [False, True])
def test_a_checkpoint_that_was_being_written(
    quiet_trainer, Tiny, loader, tmp_path, monkeypatch, caplog, is_custom
) -> None:
    """The end summary names the error that is raised; the file is neither there nor claimed."""
    saver = ModelCheckpoint(
        tmp_path / "files", "{step}", every_n_train_steps=1, save_top_k=-1, monitor=None
    )
    options = {"plugins": [TorchIO()]} if is_custom else {}
    move = atomic_write.move

    def move_or_kill(part: Path, target: Path) -> None:
        if target.name == "step=2.ckpt":
            kill_worker()
        move(part, target)

    if not is_custom:
        # at this point all of the file is written, under a hidden name
        monkeypatch.setattr(atomic_write, "move", move_or_kill)
    trainer = quiet_trainer(callbacks=[saver], enable_checkpointing=True, **options)
    with (
        caplog.at_level(logging.INFO, "trainer_hooks"),
        pytest.raises(RuntimeError, match="is killed by signal: Killed") as info,
    ):
        trainer.fit(Tiny(), loader)
    assert type(info.value) is RuntimeError
    assert "a checkpoint that was being written is not there" in notes_of(info.value)
    assert "fit failed with RuntimeError at epoch 0, step 2" in caplog.text
    assert [path.name for path in (tmp_path / "files").iterdir()] == ["step=1.ckpt"]
    assert Path(saver.best_model_path).name == "step=1.ckpt"
    assert "step=2" not in str(saver.state_dict())


@pytest.mark.parametrize(
    ("message", "how"),
    [
        ("(pid 7) is killed by signal: Segmentation fault. ", "by a signal (Segmentation fault)."),
        ("(pid 7) exited unexpectedly with exit code 3. Details are lost", "with exit code 3."),
        ("(pid(s) 7, 8) exited unexpectedly", "ended too early. torch"),
    ],
)
def test_other_ends_of_a_worker(message: str, how: str) -> None:
    """A signal is named, and an exit code; the cure is to run the loader without workers.

    Where torch does not say how the worker ended, its memory may have run out, too.
    """
    explanation = explain_worker_death(RuntimeError(f"DataLoader worker {message}"))
    assert how in explanation
    assert explanation.endswith("Pass num_workers=0 to see where it ends.")
    assert ("memory runs out" in explanation) == ("too early" in how)


def test_the_error_of_the_next_batch_is_explained_by_its_cause() -> None:
    """torch raises it from that of the handler, which knows the signal. Other errors stay."""
    error = RuntimeError("DataLoader worker (pid(s) 7) exited unexpectedly")
    error.__cause__ = RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed. ")
    assert "(Killed)" in explain_worker_death(error)
    assert explain_worker_death(RuntimeError("in a worker")) == ""
