"""A checkpoint that is a folder: whole or not at all, and opened without running code."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from trainer_hooks.checkpoint import atomic_write, seal
from trainer_hooks.checkpoint.file import (
    load_checkpoint,
    summarize,
    verify_checkpoint,
    write_checkpoint,
)
from trainer_hooks.checkpoint.inspection import inspect_file
from trainer_hooks.checkpoint.parts import FORMAT
from trainer_hooks.checkpoint.paths import exists, files_in, remove
from trainer_hooks.checkpoint.sharded_folder import read_shards, write_folder
from trainer_hooks.cli.main import main
from trainer_hooks.errors import CheckpointError

FACTS = {"module": "Net", "saved_at": 7, "origin": "here", "process": "this"}


@pytest.fixture(scope="module")
def group(tmp_path_factory):
    """A process group of this process alone."""
    # Windows has no HashStore
    store = dist.FileStore(str(tmp_path_factory.mktemp("group") / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield dist.group.WORLD
    dist.destroy_process_group()


def saved(path: Path, group, value: float = 1.0) -> Path:
    run = {
        "state_dict": {"weight": torch.empty(0), "bias": torch.ones(2)},
        "epoch": 3,
        "trainer_hooks": {
            "format": FORMAT, "version": "0", "shards": {"w": [["state_dict", "weight"]]},
        },
    }  # fmt: skip
    shards = {"w": [torch.full((4, 2), value), [4, 2], [0, 0]]}
    return Path(write_folder(run, shards, path, group, **FACTS))


def test_a_folder_comes_back_as_a_file_does(tmp_path, group):
    """Its tensors are in their places, and its seal tells what it is."""
    path = saved(tmp_path / "a.ckpt", group)
    checkpoint = load_checkpoint(path)
    assert torch.equal(checkpoint["state_dict"]["weight"], torch.ones(4, 2))
    assert torch.equal(checkpoint["state_dict"]["bias"], torch.ones(2))
    summary = summarize(str(path))
    assert (summary.saved_at, summary.module, summary.epoch) == (7, "Net", 3)
    assert inspect_file(path).weights["weight"].is_meta
    assert files_in(str(tmp_path), ".ckpt") == [str(path)]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.ckpt"]


@pytest.mark.parametrize("name", ["run.pt", ".metadata", "__0_0.distcp", "seal.json"])
@pytest.mark.parametrize("how", ["a bit", "an end", "gone"])
def test_a_change_anywhere_is_found(tmp_path, group, name, how):
    """A bit, a cut or a missing file makes it no checkpoint."""
    path = saved(tmp_path / "a.ckpt", group)
    file = path / name
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    if how == "gone":
        file.unlink()
    else:
        file.write_bytes(content if how == "a bit" else content[:-3])
    with pytest.raises(CheckpointError):
        verify_checkpoint(path)
    with pytest.raises(CheckpointError):
        load_checkpoint(path)


def test_a_tensor_that_a_folder_lacks_is_told_with_the_folder(tmp_path, group):
    """torch's own class of error, which is no Exception, does not reach the user."""
    path = saved(tmp_path / "a.ckpt", group)
    with pytest.raises(CheckpointError, match=r"a\.ckpt"):
        read_shards(path, {"of another run": torch.empty(2)})


def test_a_description_with_code_is_not_opened(tmp_path, group):
    """What torch itself would unpickle is refused, even with a seal that fits."""
    path = saved(tmp_path / "a.ckpt", group)
    witness = tmp_path / "witness"
    (path / ".metadata").write_bytes(pickle.dumps(_Evil(str(witness))))
    sums = {n: seal.file_checksum(path / n) for n in ("run.pt", ".metadata", "__0_0.distcp")}
    seal.seal_folder(path, sums, summarize(str(path)))
    with pytest.raises(CheckpointError, match="it asks for"):
        load_checkpoint(path)
    assert not witness.exists()


class _Evil:
    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_folders_and_files_take_each_others_place(tmp_path, group):
    """Either is written over the other, and nothing else is left."""
    path = saved(tmp_path / "a.ckpt", group)
    saved(tmp_path / "a.ckpt", group, 2.0)
    assert load_checkpoint(path)["state_dict"]["weight"][0, 0] == 2
    one = {"state_dict": {}, "trainer_hooks": {"format": FORMAT, "version": "0"}}
    write_checkpoint(one, path)
    assert path.is_file()
    saved(tmp_path / "a.ckpt", group, 3.0)
    assert load_checkpoint(path)["state_dict"]["weight"][0, 0] == 3
    assert [p.name for p in tmp_path.iterdir()] == ["a.ckpt"]
    remove(str(path))
    assert not exists(str(path))
    assert not list(tmp_path.iterdir())


def test_without_an_exchange_the_old_one_goes_aside_first(tmp_path, group, monkeypatch):
    """Where the system cannot let two folders change places, they do so one after the other."""
    path = saved(tmp_path / "a.ckpt", group)
    monkeypatch.setattr(atomic_write.ctypes, "CDLL", lambda *_, **__: object())
    saved(path, group, 2.0)
    assert load_checkpoint(path)["state_dict"]["weight"][0, 0] == 2
    assert [p.name for p in tmp_path.iterdir()] == ["a.ckpt"]


@pytest.mark.posix
def test_what_a_killed_save_left_goes_with_the_next(tmp_path, group):
    """An unfinished folder that nobody holds is removed; one that is held stays."""
    left = tmp_path / ".a.ckpt.0123abcd.trainer_hooks.part"
    left.mkdir()
    (left / "__0_0.distcp").write_bytes(b"half")
    held, lock = atomic_write.open_folder_part(tmp_path / "b.ckpt")
    assert not left.exists()
    saved(tmp_path / "a.ckpt", group)
    assert held.exists()
    os.close(lock)


def test_a_folder_that_cannot_be_written_leaves_the_old_one(tmp_path, group, monkeypatch):
    """An error in the midst of a save is told, and what was there stays whole."""
    path = saved(tmp_path / "a.ckpt", group)

    def fails(*_):
        raise OSError("no room")

    monkeypatch.setattr("trainer_hooks.checkpoint.sharded_folder.seal_folder", fails)
    with pytest.raises(CheckpointError, match=r"could not be written: rank 0: .*no room"):
        saved(path, group, 2.0)
    assert load_checkpoint(path)["state_dict"]["weight"][0, 0] == 1
    assert [p.name for p in tmp_path.iterdir()] == ["a.ckpt"]


def test_a_folder_without_a_seal_is_none(tmp_path):
    """Whatever has no seal is refused by name."""
    (tmp_path / "a.ckpt").mkdir()
    with pytest.raises(CheckpointError, match="is not there: it is a folder without a seal"):
        load_checkpoint(tmp_path / "a.ckpt")
    assert files_in(str(tmp_path), ".ckpt") == []


def test_a_folder_of_other_things_stays(tmp_path, group):
    """What is no checkpoint is neither replaced nor removed."""
    other = tmp_path / "a.ckpt"
    other.mkdir()
    (other / "mine").write_text("mine")
    with pytest.raises(CheckpointError, match="Is a directory"):
        saved(other, group)
    with pytest.raises(OSError, match=r"directory|permitted"):
        remove(str(other))
    assert [path.name for path in tmp_path.iterdir()] == ["a.ckpt"]
    assert (other / "mine").read_text() == "mine"


def test_another_store_is_refused(group):
    """A folder goes to a path of this machine alone."""
    with pytest.raises(CheckpointError, match="state_dict_type='full'"):
        saved("memory://a.ckpt", group)


@pytest.mark.posix
def test_the_command_line_takes_folders(tmp_path, group, capsys):
    """It shows, verifies, compares, exports and prunes them as it does files."""
    first, second = saved(tmp_path / "a.ckpt", group), saved(tmp_path / "b.ckpt", group, 2.0)

    def told(*arguments, code=0):
        assert main(["checkpoint", *map(str, arguments)]) == code
        return capsys.readouterr().out

    assert "10 elements" in told("show", first) or "2 tensors" in told("show", first)
    assert told("verify", tmp_path).count("\nok ") == 2
    assert "8 of 8 elements differ" in told("diff", first, second, code=1)
    assert "equal" in told("diff", first, first)
    told("export", second, "--weights-only", "-o", tmp_path / "out.pt")
    assert torch.load(tmp_path / "out.pt", weights_only=True)["weight"][0, 0] == 2
    told("prune", tmp_path, "--yes")
    assert not first.exists() or not second.exists()
