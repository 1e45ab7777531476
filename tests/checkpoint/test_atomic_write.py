"""What killed saves leave unfinished is tidied; what live ones write is not touched."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest
import torch
import warm_python

from trainer_hooks.checkpoint.atomic_write import (
    PART_SUFFIX,
    open_part,
    remove_stale_parts,
    reserve_name,
)
from trainer_hooks.checkpoint.file import read_checkpoint, write_checkpoint
from trainer_hooks.errors import CheckpointError

GOOD = {"state_dict": {"weight": torch.arange(600.0)}, "epoch": 3}


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run code in a new process."""
    return warm_python.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def hidden(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("."))


@pytest.mark.slow
def test_what_a_killed_save_left_goes_with_the_next_save(tmp_path):
    """A process killed in a save leaves an unfinished file, which the next save removes."""
    code = """
        import os, signal, sys
        import torch
        from trainer_hooks.checkpoint.file import write_checkpoint
        def save(content, file):
            file.write(b"half")
            file.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        torch.save = save
        write_checkpoint({"state_dict": {}}, sys.argv[1])
    """
    target = tmp_path / "a.ckpt"
    assert run(code, str(target)).returncode == -signal.SIGKILL
    assert len(hidden(tmp_path)) == 1
    assert hidden(tmp_path)[0].endswith(PART_SUFFIX)
    write_checkpoint(GOOD, tmp_path / "b.ckpt")
    assert hidden(tmp_path) == []
    assert not target.exists()


@pytest.mark.posix
def test_the_file_of_a_live_save_stays(tmp_path):
    """An unfinished file whose process is alive is left alone, in this process and others."""
    file, part = open_part(tmp_path / "a.ckpt")
    with file:
        remove_stale_parts(tmp_path)
        code = """
            import sys
            from pathlib import Path
            from trainer_hooks.checkpoint.atomic_write import remove_stale_parts
            remove_stale_parts(Path(sys.argv[1]))
        """
        assert run(code, str(tmp_path)).returncode == 0
        assert part.exists()
        file.write(b"goes on")
    remove_stale_parts(tmp_path)
    assert not part.exists()


def test_a_name_is_one_runs_until_it_lets_go(tmp_path):
    """Whoever asks while a name is kept has to take another; afterwards it is free."""
    path = tmp_path / "new" / "last.ckpt"
    first = reserve_name(path)
    assert first is not None
    assert reserve_name(path) is None
    assert reserve_name(path.with_name("other.ckpt")) is not None
    remove_stale_parts(path.parent)
    assert reserve_name(path) is None
    first.release()
    first.release()
    again = reserve_name(path)
    assert again is not None


@pytest.mark.posix
def test_a_name_that_was_taken_again_is_not_tidied(tmp_path, monkeypatch):
    """Who tidies up what it found unlocked leaves a claim alone that has come in its place."""
    path = tmp_path / "last.ckpt"
    first = reserve_name(path)
    opened, again = os.open, []

    def open_(file, flags, *rest):
        descriptor = opened(file, flags, *rest)
        if not again and not flags & os.O_CREAT:
            again.append(None)
            first.release()
            again.append(reserve_name(path))
        return descriptor

    monkeypatch.setattr(os, "open", open_)
    remove_stale_parts(tmp_path)
    monkeypatch.undo()
    assert again[1] is not None
    assert len(hidden(tmp_path)) == 1
    assert reserve_name(path) is None
    again[1].release()


def test_a_name_that_a_killed_process_kept_is_free(tmp_path):
    """The system lets go of it, and what stands for it is removed with other leftovers."""
    run(
        """
        import os, signal, sys
        from pathlib import Path
        from trainer_hooks.checkpoint.atomic_write import reserve_name
        kept = reserve_name(Path(sys.argv[1]))
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        str(tmp_path / "last.ckpt"),
    )
    assert len(hidden(tmp_path)) == 1
    claim = reserve_name(tmp_path / "last.ckpt")
    assert claim is not None
    claim.release()
    assert hidden(tmp_path) == []


def test_where_nothing_can_be_locked_names_are_free(tmp_path, monkeypatch):
    """A file system without locks, or a folder that cannot be made, keeps no name from anybody."""

    def refuse(descriptor, operation):
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    assert reserve_name(tmp_path / "last.ckpt") is not None
    assert reserve_name(tmp_path / "last.ckpt") is not None
    (tmp_path / "file").touch()
    assert reserve_name(tmp_path / "file" / "last.ckpt") is not None
    assert hidden(tmp_path) == []


def test_files_of_others_stay(tmp_path):
    """Only this library's unfinished files are tidied, whatever else looks unfinished."""
    kept = {".movie.mkv.part", ".a.ckpt.new", "x" + PART_SUFFIX, ".DS_Store"}
    for name in kept:
        (tmp_path / name).touch()
    (tmp_path / f".folder{PART_SUFFIX}").mkdir()
    write_checkpoint(GOOD, tmp_path / "a.ckpt")
    assert {path.name for path in tmp_path.iterdir()} == {*kept, "a.ckpt", f".folder{PART_SUFFIX}"}


@pytest.mark.posix
def test_a_part_taken_before_it_was_locked_is_made_again(tmp_path, monkeypatch):
    """A file that another process removes between its making and its locking is made again."""
    lock, taken = fcntl.flock, []

    def take(descriptor, how):
        if not taken:
            taken.extend(tmp_path.glob(".*"))
            taken[0].unlink()
        lock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", take)
    file, part = open_part(tmp_path / "a.ckpt")
    with file:
        assert part.exists()
    assert len(taken) == 1
    assert part != taken[0]


def test_without_locks_nothing_is_tidied_and_saving_works(tmp_path, monkeypatch):
    """On a file system without locks a leftover stays, since nobody can say whose it is."""

    def refuse(descriptor, how):
        raise OSError(errno.ENOTSUP, "no locks here")

    monkeypatch.setattr(fcntl, "flock", refuse)
    left = tmp_path / f".old.ckpt.1{PART_SUFFIX}"
    left.touch()
    write_checkpoint(GOOD, tmp_path / "a.ckpt")
    assert read_checkpoint(tmp_path / "a.ckpt")["epoch"] == 3
    assert left.exists()


@pytest.mark.parametrize(
    "name",
    [
        "n" * 250,
        "\N{ROCKET}" * 61 + "no",
        "n" + "\N{EURO SIGN}" * 83,
        "n" * 58 + "\udcff\udcfe\udcfd",
    ],
    ids=["letters", "emoji", "cut inside a sign", "no text at all"],
)
def test_the_longest_name_can_be_written(name, tmp_path):
    """A file name of as many bytes as the file system allows leaves room for the unfinished one."""
    path = tmp_path / f"{name}.ckpt"
    write_checkpoint(GOOD, path)
    assert read_checkpoint(path)["epoch"] == 3


# --- where it cannot be written ---

SAVE = """
    import os, resource, sys
    import torch
    from trainer_hooks.checkpoint.file import write_checkpoint
    from trainer_hooks.errors import CheckpointError
    {setup}
    try:
        write_checkpoint({{"state_dict": {{"weight": torch.zeros(500_000)}}}}, sys.argv[1])
    except CheckpointError as error:
        print(error)
"""


@pytest.fixture
def small_disk(tmp_path):
    """A folder on a disk of half a megabyte, where this process may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if not shutil.which("mount"):
        pytest.skip("there is no mount command")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=512k", "none", str(folder)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("this process may not mount a disk")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_disk_that_is_full(small_disk):
    """On a disk without room the error says so; the old file is whole, and nothing is left."""
    write_checkpoint(GOOD, small_disk / "a.ckpt")
    large = {"state_dict": {"weight": torch.zeros(500_000)}}
    with pytest.raises(CheckpointError) as caught:
        write_checkpoint(large, small_disk / "a.ckpt")
    assert "could not be written: [Errno 28] No space left on device." in str(caught.value)
    assert read_checkpoint(small_disk / "a.ckpt")["epoch"] == 3
    assert [path.name for path in small_disk.iterdir()] == ["a.ckpt"]


@pytest.mark.slow
def test_a_quota_that_is_used_up(tmp_path):
    """A file that may not grow so large is an error with the system's own words, not torch's."""
    write_checkpoint(GOOD, tmp_path / "a.ckpt")
    setup = "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))"
    done = run(SAVE.format(setup=setup), str(tmp_path / "a.ckpt"))
    assert "could not be written: [Errno 27] File too large." in done.stdout
    assert read_checkpoint(tmp_path / "a.ckpt")["epoch"] == 3
    assert [path.name for path in tmp_path.iterdir()] == ["a.ckpt"]


@pytest.mark.linux  # macOS has another call that syncs
def test_room_that_runs_out_only_in_the_sync(tmp_path, monkeypatch):
    """A disk that fails when the data is synced leaves the old file too."""
    write_checkpoint(GOOD, tmp_path / "a.ckpt")

    def fail(descriptor):
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch, pytest.raises(CheckpointError, match="Input/output"):
        patch.setattr(os, "fsync", fail)
        write_checkpoint({"state_dict": {}}, tmp_path / "a.ckpt")
    assert read_checkpoint(tmp_path / "a.ckpt")["epoch"] == 3
    assert hidden(tmp_path) == []


@pytest.fixture
def public_folder():
    """A folder that every user can get to; pytest's own are closed to others."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.slow
def test_a_folder_that_is_read_only(public_folder):
    """A user who may not write to the folder is told so, and what is there stays readable."""
    folder = public_folder / "closed"
    write_checkpoint(GOOD, folder / "a.ckpt")
    folder.chmod(0o555)
    # the superuser may write everywhere
    setup = "os.geteuid() or os.setuid(65534)"
    done = run(SAVE.format(setup=setup), str(folder / "a.ckpt"))
    assert "could not be written: [Errno 13] Permission denied" in done.stdout, done.stderr
    assert read_checkpoint(folder / "a.ckpt")["epoch"] == 3
    assert [path.name for path in folder.iterdir()] == ["a.ckpt"]
    folder.chmod(0o755)


def test_a_folder_that_vanished_is_made_again(tmp_path):
    """A folder that was deleted between two saves is made again."""
    folder = tmp_path / "a" / "b"
    write_checkpoint(GOOD, folder / "1.ckpt")
    shutil.rmtree(tmp_path / "a")
    write_checkpoint(GOOD, folder / "2.ckpt")
    assert read_checkpoint(folder / "2.ckpt")["epoch"] == 3


@pytest.mark.posix
def test_a_folder_that_vanishes_during_a_save_is_an_error(tmp_path, monkeypatch):
    """A folder deleted while a file is written to it is said; the next save makes it again."""
    folder, save = tmp_path / "a", torch.save

    def saves(content, file):
        save(content, file)
        shutil.rmtree(folder)

    with monkeypatch.context() as patch, pytest.raises(CheckpointError, match="No such file"):
        patch.setattr(torch, "save", saves)
        write_checkpoint(GOOD, folder / "1.ckpt")
    write_checkpoint(GOOD, folder / "1.ckpt")
    assert read_checkpoint(folder / "1.ckpt")["epoch"] == 3
