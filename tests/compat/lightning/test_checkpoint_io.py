"""A `CheckpointIO` of the user's writes, reads and removes checkpoints, as in Lightning."""

from __future__ import annotations

import copy
import json
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
import warm_python

import trainer_hooks
import trainer_hooks.compat.lightning as pl
from tests.compat.lightning import checkpoint_io_run
from tests.compat.lightning.checkpoint_io_run import Net, PickledFiles, data, make
from tests.support.plain_values import is_same, plain
from trainer_hooks.checkpoint.file import summarize, verify_checkpoint
from trainer_hooks.compat.lightning.callbacks import ModelCheckpoint
from trainer_hooks.compat.lightning.plugins.io import (
    AsyncCheckpointIO,
    CheckpointIO,
    TorchCheckpointIO,
)
from trainer_hooks.errors import (
    CheckpointError,
    CheckpointNotFoundError,
    OptionError,
    TrainerHooksWarning,
)

if TYPE_CHECKING:
    import subprocess

SCRIPT = checkpoint_io_run.__file__


def run(where: str, folder: Path, cut: int = 0) -> subprocess.CompletedProcess[str]:
    """Run the script in a process of its own."""
    command = [sys.executable, SCRIPT, where, str(folder), str(cut)]
    imports = () if where == "here" else ("pytorch_lightning",)
    return warm_python.run(command, capture_output=True, text=True, check=False, imports=imports)


def calls(where: str, folder: Path) -> list[list[object]]:
    """Return the calls of the script's class."""
    ended = run(where, folder / where)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


@pytest.mark.exhaustive
def test_each_call_is_the_one_of_lightning(tmp_path):
    """Each save, load and removal, with its path and storage options, in the same order."""
    pytest.importorskip("pytorch_lightning")
    home = calls("home", tmp_path)
    assert {call[0] for call in home} == {"save", "load", "remove"}
    assert calls("hosted", tmp_path) == home
    assert calls("here", tmp_path) == home


def test_the_class_saves_loads_and_removes(tmp_path):
    """Each file of the saver; the options of a save by hand; an evaluation from it."""
    files, folder, net = PickledFiles(), tmp_path / "files", Net()
    trainer = make(folder, files)
    trainer.fit(net, data())
    names = [f"step={step}.ckpt" for step in range(2, 14, 2)]
    assert [call[1] for call in files.calls if call[0] == "save"] == names
    assert [call[1] for call in files.calls if call[0] == "remove"] == names[:-1]
    assert [path.name for path in folder.iterdir()] == names[-1:]
    assert (folder / names[-1]).read_bytes().startswith(b"mine\n")
    assert trainer.strategy.checkpoint_io is files

    files.calls.clear()
    trainer.save_checkpoint(folder / "by hand.ckpt", storage_options={"speed": 2})
    assert files.calls == [["save", "by hand.ckpt", {"speed": 2}]]
    read = trainer.strategy.load_checkpoint(folder / "by hand.ckpt")
    assert is_same(plain(read["state_dict"]), plain(net.state_dict()), is_exact=True)
    files.calls.clear()
    trainer.validate(ckpt_path="best", dataloaders=list(torch.ones(1, 2, 4)), verbose=False)
    assert {tuple(call) for call in files.calls} == {("load", names[-1])}


class Cut(Exception):
    """The end of a run inside an epoch."""


def state(trainer: pl.Trainer) -> dict[str, object]:
    """Return what a training ends with: weights, optimizer, counters, random numbers."""
    checkpoint = trainer.dump_checkpoint()
    names = ("state_dict", "optimizer_states", "epoch", "global_step")
    return {
        **{name: plain(checkpoint[name]) for name in names},
        "rng": torch.get_rng_state().tolist(),
    }


def whole(folder: Path) -> dict[str, object]:
    """Return the state at the end of a run that nothing interrupts."""
    torch.manual_seed(3)
    trainer = make(folder, PickledFiles())
    trainer.fit(Net(), data())
    return state(trainer)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
@pytest.mark.slow
@pytest.mark.parametrize("cut", [2, 3, 5])
def test_a_run_killed_in_a_save_goes_on_exactly(tmp_path, cut):
    """Half a file is passed over with a warning, and the run goes on from the one before."""
    ended = run("here", tmp_path / "killed", cut)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    halves = sorted(path.name for path in (tmp_path / "killed").glob("*.ckpt"))
    assert halves == sorted([f"step={2 * cut - 2}.ckpt", f"step={2 * cut}.ckpt"])

    files = PickledFiles()
    trainer = make(tmp_path / "killed", files)
    torch.manual_seed(3)
    with pytest.warns(TrainerHooksWarning, match="could not be read by PickledFiles"):
        trainer.fit(Net(), data(), ckpt_path="last")
    assert ["load", f"step={2 * cut - 2}.ckpt"] in files.calls
    resumed = state(trainer)
    assert is_same(whole(tmp_path / "whole"), resumed, is_exact=True)


def test_a_resume_reads_its_checkpoint_twice_at_most(tmp_path):
    """Once to find whose it is, once to restore it: these files have no seal with the facts."""
    files = PickledFiles()
    trainer = make(tmp_path, files)
    trainer.fit(Net(), data())
    files.calls.clear()
    trainer = make(tmp_path, files)
    trainer.fit(Net(), data(), ckpt_path=tmp_path / "step=12.ckpt")
    assert files.calls == [["load", "step=12.ckpt"]] * 2


class Counted(TorchCheckpointIO):
    """The Trainer's own files, counted."""

    def __init__(self) -> None:
        self.saved = self.loaded = 0

    def save_checkpoint(self, checkpoint, path, storage_options=None):
        self.saved += 1
        super().save_checkpoint(checkpoint, path, storage_options)

    def load_checkpoint(self, path, map_location=None):
        self.loaded += 1
        return super().load_checkpoint(path, map_location)


def test_a_subclass_of_torch_files_writes_sealed_files(tmp_path):
    """They are the Trainer's own, so that another Trainer goes on from them without the class."""
    files = Counted()
    trainer = make(tmp_path, files)
    trainer.fit(Net(), data())
    assert files.saved == 6
    (path,) = tmp_path.glob("*.ckpt")
    verify_checkpoint(path)
    assert (summarize(str(path)).batches, summarize(str(path)).module) == (12, "Net")
    with pytest.raises(OptionError, match="Override save_checkpoint"):
        trainer.save_checkpoint(tmp_path / "other.ckpt", storage_options={})
    saver = ModelCheckpoint(dirpath=tmp_path, filename="{step}", every_n_train_steps=2)
    other = pl.Trainer(
        max_epochs=4, accelerator="cpu", logger=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[saver],
    )  # fmt: skip
    other.fit(Net(), data(), ckpt_path=path)
    assert other.global_step == 16
    path = tmp_path / "step=16.ckpt"
    damaged = path.read_bytes()
    path.write_bytes(damaged[:400] + b"x" + damaged[401:])
    with pytest.raises(CheckpointError, match="is damaged"):
        make(tmp_path, Counted()).fit(Net(), data(), ckpt_path=path)


class Memory(CheckpointIO):
    """Checkpoints in a dict: no file is written."""

    def __init__(self) -> None:
        self.held: dict[str, object] = {}

    def save_checkpoint(self, checkpoint, path, storage_options=None):
        self.held[Path(path).name] = checkpoint

    def load_checkpoint(self, path, map_location=None):
        if Path(path).name not in self.held:
            raise FileNotFoundError(path)
        return self.held[Path(path).name]

    def remove_checkpoint(self, path):
        del self.held[Path(path).name]


def test_a_class_need_not_write_files(tmp_path):
    """The best checkpoint is asked for by its name; an unknown one is not there."""
    memory, net = Memory(), Net()
    trainer = make(tmp_path, AsyncCheckpointIO(memory))
    trainer.fit(net, data())
    assert [*memory.held] == ["step=12.ckpt"]
    assert list(tmp_path.rglob("*")) == []
    trained = plain(net.state_dict())
    torch.nn.init.zeros_(net.layer[1].weight)
    trainer.validate(net, list(torch.ones(1, 2, 4)), ckpt_path="best", verbose=False)
    assert is_same(trained, plain(net.state_dict()), is_exact=True)
    with pytest.raises(CheckpointNotFoundError, match=r"other\.ckpt"):
        trainer.fit(net, data(), ckpt_path=tmp_path / "other.ckpt")


class Gated(Memory):
    """A class whose saves wait until a test lets them go on, or fail."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.threads, self.fails = threading.Event(), set[str](), False

    def save_checkpoint(self, checkpoint, path, storage_options=None):
        assert self.gate.wait(60)
        self.threads.add(threading.current_thread().name)
        if self.fails:
            raise OSError("the disk is full")
        super().save_checkpoint(checkpoint, path, storage_options)


class Opens(pl.Callback):
    """Lets the saves go on at the end of the last batch, when all are waiting."""

    def __init__(self, files: Gated) -> None:
        self.files = files

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        assert not self.files.held
        if trainer.global_step == 12:
            self.files.gate.set()


class Copies(Memory):
    """A class that copies the checkpoint at once."""

    def save_checkpoint(self, checkpoint, path, storage_options=None):
        super().save_checkpoint(copy.deepcopy(checkpoint), path)


def fit_keeping_all(folder: Path, io: object, *callbacks: pl.Callback) -> None:
    """Train, and keep the checkpoint of each two batches."""
    saver = ModelCheckpoint(dirpath=folder, filename="{step}", every_n_train_steps=2, save_top_k=-1)
    trainer = pl.Trainer(
        max_epochs=3, accelerator="cpu", logger=False, callbacks=[saver, *callbacks], plugins=io,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    torch.manual_seed(3)
    trainer.fit(Net(), data())


def test_saves_in_a_thread_hold_the_state_of_their_moment(tmp_path):
    """The training goes on meanwhile, and the end of the run waits for them."""
    files, copies = Gated(), Copies()
    fit_keeping_all(tmp_path, AsyncCheckpointIO(files), Opens(files))
    assert [*files.held] == [f"step={step}.ckpt" for step in range(2, 14, 2)]
    assert all(name.startswith("checkpoint writer") for name in files.threads)
    fit_keeping_all(tmp_path, copies)
    for name, checkpoint in copies.held.items():
        for part in ("state_dict", "optimizer_states"):
            there, here = checkpoint[part], files.held[name][part]
            assert is_same(plain(there), plain(here), is_exact=True), (name, part)


def test_async_save_calls_any_class_in_a_thread(tmp_path):
    """`ModelCheckpoint(async_save=True)` announces a file when the call has returned."""
    files, announced = Gated(), []
    files.gate.set()

    class Listens(trainer_hooks.Callback):
        def on_checkpoint_saved(self, trainer, module, path):
            announced.append((Path(path).name, Path(path).name in files.held))

    saver = ModelCheckpoint(dirpath=tmp_path, filename="{step}", async_save=True)
    trainer = pl.Trainer(
        max_epochs=2, accelerator="cpu", logger=False, callbacks=[saver, Listens()],
        plugins=files, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Net(), data())
    assert announced == [("step=4.ckpt", True), ("step=8.ckpt", True)]
    assert files.threads == {"checkpoint writer"}
    assert [*files.held] == ["step=8.ckpt"]


def test_an_error_of_a_save_in_a_thread_ends_the_run(tmp_path):
    """It is not lost."""
    files = Gated()
    files.fails = True
    with pytest.raises((OSError, CheckpointError), match="the disk is full"):
        fit_keeping_all(tmp_path, AsyncCheckpointIO(files), Opens(files))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([PickledFiles(), Memory()], "one object with the methods"),
        ([object()], "one object with the methods"),
        (PickledFiles, "one object with the methods"),
    ],
)
def test_other_objects_are_refused(given, message):
    """Two of them, one without the methods, and a class."""
    with pytest.raises(OptionError, match=message):
        pl.Trainer(plugins=given)


def test_an_error_of_the_class_says_whose_it_is(tmp_path):
    """Of a save and of a load, with the error as its cause; a result that is no dict, too."""

    class Broken(Memory):
        def save_checkpoint(self, checkpoint, path, storage_options=None):
            raise ValueError("no room")

        def load_checkpoint(self, path, map_location=None):
            return "text"

    trainer = make(tmp_path, Broken())
    with pytest.raises(CheckpointError, match="could not be written by Broken: no room") as raised:
        trainer.fit(Net(), data())
    assert isinstance(raised.value.__cause__, ValueError)
    with pytest.raises(CheckpointError, match=r"returned a str\. Return the dict"):
        trainer.fit(Net(), data(), ckpt_path=tmp_path / "any.ckpt")
