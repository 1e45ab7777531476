"""A start from a checkpoint that failed before it had trained a batch is told at the next one."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import warnings

import pytest
import torch
import warm_python
from new_processes import forget_trainings

from trainer_hooks import Callback, Trainer
from trainer_hooks._system import process_start
from trainer_hooks.callbacks import ModelCheckpoint
from trainer_hooks.errors import TrainerHooksWarning
from trainer_hooks.trainer.identity.run_origin import process_identity
from trainer_hooks.trainer.messages import failed_start
from trainer_hooks.trainer.messages.failed_start import RECORD

BATCHES = [torch.ones(2, 2)] * 4


class Raises(Callback):
    """Raises an error at a hook, or at a batch."""

    def __init__(self, hook: str = "", error: type[BaseException] = ValueError, at: int = 0):
        self.hook, self.error, self.at = hook, error, at

    def run_event(self, event, *args):
        if event == self.hook and args[0].progress.batches_completed >= self.at:
            raise self.error(f"a fault in {event}")


@pytest.fixture
def fit(tmp_path, Tiny):
    """Return a function that starts the training anew, as another process would."""

    def start(*callbacks, epochs=2, ckpt_path="auto", folder=tmp_path) -> list[str]:
        forget_trainings()
        saver = ModelCheckpoint(folder, save_last=True)
        trainer = Trainer(
            max_epochs=epochs, accelerator="cpu", logger=False, plugins=False,
            callbacks=[*callbacks, saver], enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", TrainerHooksWarning)
            with contextlib.suppress(ValueError, KeyboardInterrupt):
                trainer.fit(Tiny(), BATCHES, ckpt_path=ckpt_path)
        return [str(one.message) for one in caught if "once more" in str(one.message)]

    return start


@pytest.mark.parametrize(
    "hook",
    ["setup", "on_before_load", "on_load_checkpoint", "on_fit_start", "on_train_start",
     "on_train_epoch_start", "on_before_dataloader", "on_train_batch_start", "on_before_backward"],
)  # fmt: skip
def test_a_start_that_failed_is_told_once_it_is_taken_again(fit, tmp_path, hook):
    """Wherever it failed before its first new batch was trained; and until it has gone well."""
    fit(epochs=1)
    assert fit(Raises(hook)) == []
    told = fit(Raises(hook))
    assert len(told) == 1
    assert "last.ckpt' once more" in told[0]
    assert f"ValueError: a fault in {hook}" in told[0]
    assert len(fit()) == 1
    assert not (tmp_path / RECORD).exists()
    assert fit(epochs=3) == []


PROGRAM = """
import os, signal, sys
import torch
from trainer_hooks import Callback, Trainer
from trainer_hooks.callbacks import ModelCheckpoint
from trainer_hooks._system import process_start
from trainer_hooks.testing import TinyModule

class Killed(Callback):
    def run_event(self, event, *args):
        if event == sys.argv[1] and args[0].progress.batches_completed >= int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)

saver = ModelCheckpoint(".", every_n_train_steps=2, filename="{step}")
Trainer(
    max_epochs=1, accelerator="cpu", logger=False, plugins=False, callbacks=[Killed(), saver],
    enable_progress_bar=False, enable_model_summary=False, limit_train_batches=4,
).fit(TinyModule(), ckpt_path="auto")
"""


def run_killed(folder, hook: str, at: int) -> str:
    """Run a training whose process kills itself at a hook; return its messages."""
    done = warm_python.run(
        [sys.executable, "-c", PROGRAM, hook, str(at)],
        cwd=folder, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == (-signal.SIGKILL if hook else 0), done.stderr
    return " ".join(done.stderr.split())


@pytest.mark.slow
@pytest.mark.parametrize("hook", ["on_before_load", "on_fit_start", "on_train_batch_start"])
def test_a_start_that_was_killed_is_told_once_it_is_taken_again(tmp_path, hook):
    """A process that is killed says nothing, but the record is there already."""
    run_killed(tmp_path, "on_train_batch_end", 3)
    assert [path.name for path in tmp_path.glob("*.ckpt")] == ["step=2.ckpt"]
    assert "once more" not in run_killed(tmp_path, hook, 0)
    assert (tmp_path / RECORD).exists()
    told = run_killed(tmp_path, "", 0)
    assert "step=2.ckpt' once more, although the last start from it failed before it had" in told
    assert "its process ended without an error, as one that is killed" in told
    assert not (tmp_path / RECORD).exists()


@pytest.mark.slow
def test_a_kill_after_the_first_batch_is_not_told(tmp_path):
    """Then the checkpoint was good to go on from."""
    run_killed(tmp_path, "on_train_batch_end", 3)
    run_killed(tmp_path, "on_train_batch_end", 3)
    assert not (tmp_path / RECORD).exists()
    assert "once more" not in run_killed(tmp_path, "", 0)


def test_a_record_lasts_until_the_first_batch(fit, tmp_path):
    """It is one small file, for as long as a kill would be the checkpoint's fault."""
    seen = []

    class Looks(Callback):
        def run_event(self, event, *args):
            if event in ("on_fit_start", "on_train_batch_start", "on_train_batch_end"):
                seen.append((event[3:], (tmp_path / RECORD).exists()))

    fit(epochs=1)
    fit(Looks())
    assert seen[:3] == [
        ("fit_start", True),
        ("train_batch_start", True),
        ("train_batch_end", False),
    ]
    assert not any(is_there for _, is_there in seen[2:])


def test_a_callback_that_chooses_another_checkpoint(fit, tmp_path):
    """The record of the one that was chosen first is removed, and a path has none."""

    class Chooses(Callback):
        def setup(self, trainer, module, stage):
            assert (tmp_path / RECORD).exists()
            trainer.ckpt_path = tmp_path / "other" / "last.ckpt"

    fit(epochs=1)
    fit(epochs=1, folder=tmp_path / "other")
    fit(Chooses())
    assert not list(tmp_path.rglob(RECORD))


def test_a_start_that_goes_on_beside_this_one(fit, tmp_path):
    """A live process that has not trained a batch yet has not failed."""
    fit(epochs=1)
    fit(Raises("on_train_start"))
    record = tmp_path / RECORD
    with warm_python.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        machine = process_identity().split()[0]
        identity = f"{machine} {process.pid} {process_start(process.pid)}"
        record.write_text(json.dumps({**json.loads(record.read_text()), "process": identity}))
        assert fit(Raises("on_train_start")) == []
        process.communicate(b"\n")


def test_a_folder_that_takes_no_file(fit, tmp_path, monkeypatch, caplog):
    """The record is left out, with a message, and the fit goes on."""
    fit(epochs=1)

    def refuse(path, what):
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(failed_start, "open_whole", refuse)
    assert fit() == []
    assert "the record of the start was not changed" in caplog.text


@pytest.mark.parametrize(
    "callback",
    [Raises("on_train_batch_end", at=5), Raises("on_train_start", KeyboardInterrupt)],
    ids=["after a batch", "Ctrl-C"],
)
def test_other_ends_are_not_told(fit, tmp_path, callback):
    """A batch was trained, or the user has ended it."""
    fit(epochs=1)
    fit(callback)
    assert not (tmp_path / RECORD).exists()
    assert fit() == []


def test_a_path_is_the_users(fit, tmp_path):
    """A start from a path leaves no record, and is not told of one."""
    fit(epochs=1)
    path = tmp_path / "last.ckpt"
    fit(Raises("on_train_start"), ckpt_path=path)
    assert not (tmp_path / RECORD).exists()
    fit(Raises("on_train_start"))
    assert (tmp_path / RECORD).exists()
    assert fit(Raises("on_train_start"), ckpt_path=path) == []


def test_another_checkpoint_of_that_name_is_not_meant(fit, tmp_path):
    """The record names the save, not only the file."""
    fit(epochs=1)
    fit(Raises("on_train_start"))
    record = tmp_path / RECORD
    content = json.loads(record.read_text())
    record.write_text(json.dumps({**content, "saved_at": content["saved_at"] + 1}))
    assert fit() == []


@pytest.mark.parametrize("text", ["", "[]", "{", '{"checkpoint": "last.ckpt"}'])
def test_a_damaged_record_is_none(fit, tmp_path, text):
    """A start does not fail by it."""
    fit(epochs=1)
    (tmp_path / RECORD).write_text(text)
    assert fit() == []


def test_a_store_keeps_the_record_too(fit):
    """As it keeps the checkpoints."""
    pytest.importorskip("fsspec")
    folder = "memory://failed-start"
    fit(epochs=1, folder=folder)
    fit(Raises("on_train_start"), folder=folder)
    assert len(fit(folder=folder)) == 1
    assert fit(epochs=3, folder=folder) == []
