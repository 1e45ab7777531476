"""CheckpointSaver: copies of its checkpoints in another store, and what it does not save."""

from __future__ import annotations

import threading
from functools import partial

import fsspec
import pytest
import torch
from fsspec.implementations.local import LocalFileSystem

from trainer_hooks import Callback
from trainer_hooks.compat.composer.callbacks import CheckpointSaver
from trainer_hooks.errors import CheckpointError


class _Store(LocalFileSystem):
    """A store of files whose uploads can be held, or refused."""

    protocol = "held"
    gate = threading.Event()
    refuses = False
    active = most = 0
    arrived = threading.Semaphore(0)
    lock = threading.Lock()

    def put_file(self, lpath, rpath, *args, **kwargs):
        cls = type(self)
        with cls.lock:
            cls.active += 1
            cls.most = max(cls.most, cls.active)
        cls.arrived.release()
        cls.gate.wait()
        if cls.refuses:
            raise PermissionError("no room")
        super().put_file(lpath, rpath, *args, **kwargs)
        with cls.lock:
            cls.active -= 1

    @classmethod
    def _strip_protocol(cls, path):
        return LocalFileSystem._strip_protocol(str(path).replace("held://", "file://"))


fsspec.register_implementation("held", _Store)


@pytest.fixture
def store():
    """Return the store, open."""
    _Store.gate.set()
    _Store.refuses, _Store.active, _Store.most = False, 0, 0
    _Store.arrived = threading.Semaphore(0)
    yield _Store
    _Store.gate.set()


@pytest.fixture
def fit(fit):
    """Return the function that trains, for three epochs unless said."""
    return partial(fit, max_epochs=3)


def names(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def saver(tmp_path, store):
    """Return a function that makes a saver of batches, which keeps one file here."""

    def make(**options) -> CheckpointSaver:
        arguments = {
            "folder": tmp_path / "here",
            "filename": "{batch}.pt",
            "remote_file_name": f"held://{tmp_path}/there/ep{{epoch}}-ba{{batch}}.pt",
            "latest_filename": None,
            "latest_remote_file_name": f"held://{tmp_path}/there/latest.pt",
            "num_checkpoints_to_keep": 1,
        }
        return CheckpointSaver(**{**arguments, **options})

    return make


def test_each_checkpoint_is_sent_and_the_newest_is_the_latest(fit, saver, tmp_path):
    """All are there, one is here, and a run goes on from the address of the latest."""
    fit(saver())
    assert names(tmp_path / "here") == ["12.pt"]
    assert names(tmp_path / "there") == ["ep1-ba4.pt", "ep2-ba8.pt", "ep3-ba12.pt", "latest.pt"]
    same = (tmp_path / "there" / "latest.pt").read_bytes()
    assert same == (tmp_path / "there" / "ep3-ba12.pt").read_bytes()
    trainer = fit(saver(), ckpt_path=f"held://{tmp_path}/there/latest.pt", max_epochs=4)
    assert trainer.global_step == 16


@pytest.mark.parametrize("is_async", [False, True])
def test_training_goes_on_while_a_checkpoint_is_sent_which_stays_as_long(
    fit, saver, tmp_path, store, is_async
):
    """A file that is replaced is removed once it is sent, and no batch waits for that."""
    store.gate.clear()
    seen: list[list[str]] = []

    class Open(Callback):
        def on_train_end(self, trainer, module) -> None:
            seen.append(names(tmp_path / "here"))
            store.gate.set()

    fit(Open(), saver(async_save=is_async))
    assert {"4.pt", "8.pt"} <= set(seen[0])
    assert names(tmp_path / "here") == ["12.pt"]
    assert len(names(tmp_path / "there")) == 4
    assert store.most == 1


def test_so_many_are_sent_at_a_time(fit, saver, store):
    """`num_concurrent_uploads` bounds the threads that send, and an old one is not the latest."""
    store.gate.clear()

    class Open(Callback):
        def on_train_end(self, trainer, module) -> None:
            for _ in range(2):
                assert store.arrived.acquire(timeout=30)
            store.gate.set()

    fit(Open(), saver(num_concurrent_uploads=2, save_interval="2ba"))
    assert store.most == 2


def test_what_cannot_be_sent_is_an_error_and_stays_here(fit, saver, tmp_path, store):
    """A store that refuses is told of by its address, and no checkpoint is lost."""
    store.refuses = True
    with pytest.raises(CheckpointError, match=r"ep1-ba4\.pt.*no room"):
        fit(saver(), max_epochs=1)
    assert names(tmp_path / "here") == ["4.pt"]
    store.refuses = True
    with pytest.raises(CheckpointError, match=r"ep\d-ba\d\.pt.*no room"):
        fit(saver(folder=tmp_path / "more"), max_epochs=50)
    assert "4.pt" in names(tmp_path / "more")


def test_the_end_waits_only_so_long(fit, saver, tmp_path, store):
    """After `upload_timeout_in_seconds` the run ends with an error that names what is not sent."""
    store.gate.clear()
    with pytest.raises(CheckpointError, match=r"ep1-ba4\.pt' was not sent within 0\.01 s"):
        fit(saver(upload_timeout_in_seconds=0.01), max_epochs=1)
    assert names(tmp_path / "here") == ["4.pt"]


def test_a_resumed_run_sends_what_the_cut_one_did_not(fit, saver, tmp_path):
    """What is not there is sent as the run goes on, also what it had replaced."""
    fit(saver(), max_epochs=2)
    (tmp_path / "there" / "ep2-ba8.pt").unlink()
    fit(saver(), ckpt_path=tmp_path / "here" / "8.pt")
    assert "ep2-ba8.pt" in names(tmp_path / "there")
    assert names(tmp_path / "here") == ["12.pt", "8.pt"]  # one given by its path is not removed


def test_the_newest_wins_under_one_name(fit, saver, tmp_path):
    """Names without counters are written over, here and there."""
    remote = f"held://{tmp_path}/there/model.pt"
    fit(saver(filename="model.pt", remote_file_name=remote, latest_remote_file_name=None))
    assert names(tmp_path / "there") == ["model.pt"]
    there = torch.load(tmp_path / "there" / "model.pt", weights_only=True)
    assert there["global_step"] == 12


def test_what_is_ignored_is_not_saved(fit, tmp_path):
    """`ignore_keys` leaves parts out of its own files, and of no others."""

    class Also(Callback):
        def on_train_end(self, trainer, module) -> None:
            trainer.save_checkpoint(tmp_path / "whole.pt")

    keys = ["state_dict/layer.b*", "optimizer_states"]
    fit(CheckpointSaver(tmp_path, "{batch}.pt", ignore_keys=keys), Also(), max_epochs=1)
    part = torch.load(tmp_path / "4.pt", weights_only=True)
    assert list(part["state_dict"]) == ["layer.weight"]
    assert "optimizer_states" not in part
    whole = torch.load(tmp_path / "whole.pt", weights_only=True)
    assert "layer.bias" in whole["state_dict"]
    assert "optimizer_states" in whole
