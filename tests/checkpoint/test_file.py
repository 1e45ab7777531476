"""A checkpoint is written whole or not at all, and read without running code."""

from __future__ import annotations

import datetime as dt
import os
import pickle
import random
import shutil
import stat
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest
import torch
import warm_python

from trainer_hooks.checkpoint.file import read_checkpoint, write_checkpoint
from trainer_hooks.errors import CheckpointError, CheckpointNotFoundError

GOOD = {"state_dict": {"weight": torch.arange(600.0)}, "epoch": 3, "callbacks": {"A": {"n": [1]}}}


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "run.ckpt"


def message(read, error=CheckpointError) -> str:
    """Return the text of the one error that a call raises."""
    with pytest.raises(error) as caught:
        read()
    assert "\n" not in str(caught.value)
    assert "\x1b" not in str(caught.value)
    return str(caught.value)


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


# --- writing ---


def test_what_is_written_comes_back(path):
    """A checkpoint is read back equal, from the absolute path that writing returned."""
    written = write_checkpoint(GOOD, path)
    assert written == str(path)
    back = read_checkpoint(written)
    assert torch.equal(back["state_dict"]["weight"], GOOD["state_dict"]["weight"])
    assert (back["epoch"], back["callbacks"]) == (3, {"A": {"n": [1]}})


def test_folders_are_made(tmp_path):
    """Folders on the way that are missing are made."""
    write_checkpoint(GOOD, tmp_path / "a" / "b" / "c.ckpt")
    assert names(tmp_path / "a" / "b") == ["c.ckpt"]


def test_a_relative_path_is_taken_from_the_working_directory(tmp_path, monkeypatch):
    """A relative path is returned absolute, so that it can be found again from elsewhere."""
    monkeypatch.chdir(tmp_path)
    assert write_checkpoint(GOOD, "run.ckpt") == str(tmp_path / "run.ckpt")


def test_the_umask_of_the_process_is_left_alone(path, monkeypatch):
    """A file written by one thread does not change, however shortly, how others make theirs."""
    monkeypatch.setattr(os, "umask", lambda mask: pytest.fail("the umask was set"))
    write_checkpoint(GOOD, path)
    assert path.exists()


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002], ids=oct)
def test_the_mode_of_the_file_follows_the_umask(path, umask):
    """A checkpoint is as readable for others as any new file, though it was a temporary one."""
    before = os.umask(umask)
    try:
        write_checkpoint(GOOD, path)
        assert os.umask(umask) == umask
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask


@pytest.mark.parametrize("error", [OSError(28, "No space left"), RuntimeError("enforce fail")])
def test_a_write_that_fails_leaves_the_old_file(path, monkeypatch, error):
    """Where writing fails midway, the old file is untouched and no temporary file is left."""
    write_checkpoint(GOOD, path)
    before = path.read_bytes()

    def fail(checkpoint, file) -> None:
        file.write(b"half of it")
        raise error

    monkeypatch.setattr(torch, "save", fail)
    text = message(lambda: write_checkpoint(GOOD, path))
    assert text.startswith(f"checkpoint {str(path)!r} could not be written: ")
    assert "What was there before is untouched" in text
    assert path.read_bytes() == before
    assert names(path.parent) == ["run.ckpt"]


@pytest.mark.parametrize("writes", [0, 100])
def test_a_write_that_is_cut_off_without_an_error_leaves_the_old_file(path, monkeypatch, writes):
    """`torch.save` that writes nothing, as a mock in its place does, or less than a zip file."""
    write_checkpoint(GOOD, path)
    before = path.read_bytes()
    monkeypatch.setattr(torch, "save", lambda checkpoint, file: file.write(before[:writes]))
    told = message(lambda: write_checkpoint({**GOOD, "epoch": 4}, path))
    assert "could not be written: the zip file does not end with its directory" in told
    assert path.read_bytes() == before
    assert names(path.parent) == [path.name]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), TypeError("cannot pickle")])
def test_any_other_error_leaves_no_temporary_file_either(path, monkeypatch, error):
    """An interrupt inside the write comes out as it is, and nothing is left behind."""

    def fail(checkpoint, file) -> None:
        raise error

    monkeypatch.setattr(torch, "save", fail)
    with pytest.raises(type(error)):
        write_checkpoint(GOOD, path)
    assert names(path.parent) == []


@pytest.mark.linux  # macOS has another call that syncs
@pytest.mark.posix
def test_a_kill_before_the_move_leaves_the_old_file(path, monkeypatch):
    """All is on the disk before the new file takes the old one's place."""
    write_checkpoint(GOOD, path)
    steps = []
    sync, replace = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (steps.append("sync"), sync(fd)))
    monkeypatch.setattr(Path, "replace", lambda s, t: (steps.append("move"), replace(s, t)))
    write_checkpoint(GOOD, path)
    assert steps == ["sync", "move", "sync"]


@pytest.mark.slow
def test_a_full_disk_leaves_the_old_file(path):
    """Where the disk has no room, the error says so, and the old checkpoint can still be read."""
    write_checkpoint(GOOD, path)
    code = """
        import resource, sys, torch
        from trainer_hooks.checkpoint.file import write_checkpoint
        from trainer_hooks.errors import CheckpointError
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        try:
            write_checkpoint({"state_dict": {"weight": torch.zeros(100_000)}}, sys.argv[1])
        except CheckpointError as error:
            print(error)
    """
    done = warm_python.run(
        [sys.executable, "-c", textwrap.dedent(code), str(path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.startswith(f"checkpoint {str(path)!r} could not be written: ")
    assert read_checkpoint(path)["epoch"] == 3
    assert names(path.parent) == ["run.ckpt"]


def test_a_folder_that_is_a_file(tmp_path):
    """A file in the place of the folder is said, and stays."""
    (tmp_path / "runs").write_text("notes")
    text = message(lambda: write_checkpoint(GOOD, tmp_path / "runs" / "a.ckpt"))
    assert "could not be written" in text
    assert (tmp_path / "runs").read_text() == "notes"


def test_a_path_that_is_a_folder(path):
    """A folder in the place of the file is not replaced."""
    path.mkdir()
    (path / "kept").touch()
    assert "could not be written" in message(lambda: write_checkpoint(GOOD, path))
    assert names(path.parent) == ["run.ckpt"]
    assert names(path) == ["kept"]


def test_a_folder_that_cannot_be_written_to(tmp_path, monkeypatch):
    """A refused permission is an error, never passed over."""
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o500)
    if os.access(folder, os.W_OK):  # the superuser may write everywhere

        def refuse(*args, **kwargs):
            raise PermissionError(13, "Permission denied", str(folder))

        monkeypatch.setattr("trainer_hooks.checkpoint.atomic_write.open_part", refuse)
    text = message(lambda: write_checkpoint(GOOD, folder / "a.ckpt"))
    assert "Permission denied" in text
    assert names(folder) == []


# --- reading ---


def test_a_missing_file_names_its_neighbours(tmp_path):
    """A path that is mistyped is answered with the checkpoints that are there."""
    write_checkpoint(GOOD, tmp_path / "step=3.ckpt")
    text = message(lambda: read_checkpoint(tmp_path / "step=4.ckpt"), CheckpointNotFoundError)
    assert text.endswith("is not there. In its folder there are: step=3.ckpt.")
    with pytest.raises(FileNotFoundError):
        read_checkpoint(tmp_path / "step=4.ckpt")


def test_a_missing_folder_is_said(tmp_path):
    """Where the folder is missing too, that is what is said."""
    text = message(lambda: read_checkpoint(tmp_path / "no" / "a.ckpt"))
    assert f"Its folder {str(tmp_path / 'no')!r} does not exist either." in text


def test_a_folder_is_no_checkpoint(tmp_path):
    """A folder's path is answered as a missing checkpoint."""
    text = message(lambda: read_checkpoint(tmp_path), CheckpointNotFoundError)
    assert "is not there: it is a folder without a seal" in text
    assert "Give the path of a file; a fit finds its own with ckpt_path='last'." in text


@pytest.mark.parametrize("run", ["", "trainer_logs/version_0"], ids=["of a run", "of runs"])
def test_a_folder_of_runs_names_their_checkpoints(tmp_path, run):
    """Who gives the folder of a run reads which file to give."""
    folder = tmp_path / run / "checkpoints"
    folder.mkdir(parents=True)
    write_checkpoint(GOOD, folder / "step=3.ckpt")
    text = message(lambda: read_checkpoint(tmp_path), CheckpointNotFoundError)
    assert f"In it there are: {(folder / 'step=3.ckpt').relative_to(tmp_path).as_posix()}." in text


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it is empty. Resume from an earlier one."),
        (
            b"hello world\n",
            "it was not written by torch.save, and so is no checkpoint. Give the path of one.",
        ),
    ],
    ids=["empty", "text"],
)
def test_a_file_of_another_kind_is_named(path, content, reason):
    """An empty file and one of another program are no torch error."""
    path.write_bytes(content)
    text = message(lambda: read_checkpoint(path))
    assert text == f"checkpoint {str(path)!r} cannot be read: {reason}"


@pytest.mark.parametrize("share", [0.0, 0.001, 0.01, 0.1, 0.5, 0.9, 0.97, 0.9999])
def test_a_truncated_file_is_refused(path, share):
    """A file of which the end is missing is refused, wherever it ends, and so is a longer one."""
    write_checkpoint(GOOD, path)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    text = message(lambda: read_checkpoint(path))
    kind = "is damaged: it is not what" if share else "cannot be read: it is empty."
    assert text.startswith(f"checkpoint {str(path)!r} {kind} ")
    assert text.endswith("Resume from an earlier one.")


@pytest.mark.slow
def test_a_bit_that_changed_on_the_disk_is_found(path):
    """Of a file with one wrong bit, either nothing is wrong with what is read, or it is refused."""
    write_checkpoint(GOOD, path)
    content = path.read_bytes()
    choose = random.Random(4)
    refused = 0
    for _ in range(150):
        damaged = bytearray(content)
        damaged[choose.randrange(len(content))] ^= 1 << choose.randrange(8)
        path.write_bytes(damaged)
        try:
            back = read_checkpoint(path)
        except CheckpointError:
            refused += 1
        else:
            assert torch.equal(back["state_dict"]["weight"], GOOD["state_dict"]["weight"])
            assert (back["epoch"], back["callbacks"]) == (3, {"A": {"n": [1]}})
    assert refused > 75


def test_a_changed_weight_is_named_as_damage(path):
    """A flipped bit of a weight, which torch loads without a word, is told as damage."""
    write_checkpoint(GOOD, path)
    content = bytearray(path.read_bytes())
    place = content.find(GOOD["state_dict"]["weight"].numpy().tobytes())
    content[place + 40] ^= 1
    path.write_bytes(content)
    assert torch.load(path, weights_only=True)["epoch"] == 3
    assert "is damaged: it is not what was written" in message(lambda: read_checkpoint(path))


@pytest.mark.parametrize(
    "content", [b"", b"hello", b"PK\x03\x04", b"\x80\x02}q\x00.", b"\x00" * 5000]
)
def test_a_file_that_is_no_checkpoint(path, content):
    """What was never a checkpoint is refused with one error, whatever torch makes of it."""
    path.write_bytes(content)
    kind = "is damaged" if content.startswith(b"PK") else "cannot be"
    assert f"checkpoint {str(path)!r} {kind}" in message(lambda: read_checkpoint(path))


def test_another_zip(path):
    """A zip file of something else is refused."""
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("notes.txt", "hello")
    assert "cannot be read" in message(lambda: read_checkpoint(path))


def test_bare_weights(path):
    """A bare state_dict is refused with its keys and what to do with it."""
    torch.save({"layer.weight": torch.ones(2), "layer.bias": torch.ones(1)}, path)
    text = message(lambda: read_checkpoint(path))
    assert "it holds a dict with the keys ['layer.bias', 'layer.weight']" in text
    assert "To use bare weights, call module.load_state_dict." in text


def test_a_single_tensor(path):
    """A tensor alone is refused by its type."""
    torch.save(torch.ones(2), path)
    assert "it holds a Tensor, and must hold a dict" in message(lambda: read_checkpoint(path))


class Trap:
    """Makes a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self):
        return (Path.touch, (self.file,))


@pytest.mark.parametrize("force", [False, True], ids=["plain", "forced by the environment"])
@pytest.mark.parametrize("form", ["zip", "legacy", "pickle"])
def test_no_code_is_run(path, tmp_path, monkeypatch, form, force):
    """A file that would run code runs none, in any form, whatever the environment says."""
    if force:
        monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    content = {"state_dict": {}, "callbacks": {"A": Trap(tmp_path / "sprung")}}
    if form == "pickle":
        path.write_bytes(pickle.dumps(content, protocol=2))
    else:
        torch.save(content, path, _use_new_zipfile_serialization=form == "zip")
    text = message(lambda: read_checkpoint(path))
    assert "which is never run here" in text or "it is truncated or no checkpoint" in text
    assert "weights_only" not in text
    assert not (tmp_path / "sprung").exists()


def test_the_object_that_asks_for_code_is_named(path):
    """The class that a file asks for is named in the message."""
    torch.save({"state_dict": {}, "when": dt.timedelta(1)}, path)
    assert "(it asks for datetime.timedelta)" in message(lambda: read_checkpoint(path))


@pytest.mark.posix
def test_a_folder_that_is_removed_during_a_save_is_made_again(tmp_path):
    """A save in the background finds what a training did to the folder meanwhile."""
    path, times = tmp_path / "c" / "run.ckpt", []

    def dump(checkpoint, file):
        times.append(len(times))
        file.write(b"whole")
        if len(times) == 1:
            shutil.rmtree(tmp_path / "c")

    write_checkpoint(GOOD, path, dump=dump)
    assert times == [0, 1]
    assert path.read_bytes() == b"whole"
    assert names(path.parent) == ["run.ckpt"]


@pytest.mark.posix
def test_a_folder_that_is_removed_each_time_is_an_error(tmp_path):
    """It is made once more, and not for ever."""

    def dump(checkpoint, file):
        shutil.rmtree(tmp_path / "c")

    with pytest.raises(CheckpointError, match=r"could not be written: .*No such file"):
        write_checkpoint(GOOD, tmp_path / "c" / "run.ckpt", dump=dump)
