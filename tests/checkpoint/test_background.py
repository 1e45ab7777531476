"""Files written by another thread: order, news, failures, and that an exit waits."""

from __future__ import annotations

import gc
import logging
import subprocess
import sys
import textwrap
import threading
import weakref

import pytest
import torch

from trainer_hooks.checkpoint import background
from trainer_hooks.checkpoint.background import BackgroundSaves
from trainer_hooks.errors import CheckpointError


class Writer:
    """Stands for the writing of a file: waits at a gate, and notes what it was given."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.begun = threading.Event()
        self.written: list[tuple[str, float]] = []
        self.threads: list[threading.Thread] = []
        self.error: BaseException | None = None

    def __call__(self, checkpoint, path) -> str:
        self.begun.set()
        self.threads.append(threading.current_thread())
        assert self.gate.wait(30)
        if self.error is not None:
            raise self.error
        self.written.append((path, checkpoint["x"].sum().item()))
        return path


@pytest.fixture
def writer():
    writer = Writer()
    yield writer
    writer.gate.set()
    for thread in writer.threads:
        thread.join(30)


@pytest.fixture
def told() -> list:
    return []


@pytest.fixture
def saves(told) -> BackgroundSaves:
    return BackgroundSaves(lambda path: told.append((path, threading.current_thread())))


def state(value: float = 1.0) -> dict:
    return {"x": torch.full((3,), value)}


def test_the_caller_goes_on_while_the_file_is_written(saves, writer, told) -> None:
    """`start` returns before anything is written, and what changes then is not in the file."""
    kept = state()
    save = saves.start(kept, ("a",), writer)
    kept["x"].fill_(100)
    assert writer.begun.wait(30)
    assert (writer.written, save.is_durable, save.has_failed, saves.has_news) == (
        [],
        False,
        False,
        False,
    )
    writer.gate.set()
    saves.finish()
    assert writer.written == [("a", 3.0)]
    assert save.is_durable
    assert told == [("a", threading.main_thread())]
    assert writer.threads[0] is not threading.main_thread()


def test_the_second_save_waits_for_the_first(saves, writer, told) -> None:
    """There is one copy of the state and one writer; files are written in the order of saves."""
    saves.start(state(1), ("a", "b"), writer)
    assert writer.begun.wait(30)
    opener = threading.Timer(0.05, writer.gate.set)
    opener.start()
    saves.start(state(2), ("c",), writer)
    assert writer.written[:2] == [("a", 3.0), ("b", 3.0)]
    saves.finish()
    opener.join()
    assert writer.written == [("a", 3.0), ("b", 3.0), ("c", 6.0)]
    assert [path for path, _ in told] == ["a", "b", "c"]


def test_news_are_told_when_they_are_asked_for(saves, writer, told) -> None:
    """What became durable waits for the main thread to ask, and is told once."""
    writer.gate.set()
    saves.start(state(), ("a",), writer).wait()
    assert saves.has_news
    assert told == []
    saves.notify_durable()
    saves.notify_durable()
    saves.finish()
    assert [path for path, _ in told] == ["a"]
    assert not saves.has_news


def test_a_failure_is_raised_at_the_next_save(saves, writer, told, caplog) -> None:
    """The next save names the file and the cause, and the one after that goes on."""
    writer.error = OSError("no space left")
    writer.gate.set()
    with caplog.at_level(logging.ERROR, "trainer_hooks"):
        save = saves.start(state(), ("a", "b"), writer)
        save.wait()
    saves.notify_durable()
    saves.catch_up()
    assert save.has_failed
    assert not save.is_durable
    with pytest.raises(CheckpointError, match=r"the save of 'a' in the background.*no space") as e:
        saves.start(state(), ("c",), writer)
    assert e.value.__cause__ is writer.error
    assert "no space left" in caplog.text
    writer.error = None
    saves.start(state(), ("d",), writer)
    saves.finish()
    assert [path for path, _ in told] == ["d"]


def test_a_thread_that_cannot_start_is_an_error_and_no_hang(
    saves, writer, told, monkeypatch
) -> None:
    """A limit on processes is told of at once; nothing waits for it, and the next save runs."""
    start = threading.Thread.start

    def refused(thread) -> None:
        if thread.name == "checkpoint writer":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refused)
    with pytest.raises(CheckpointError, match=r"'a'.*can't start new thread"):
        saves.start(state(), ("a", "b"), writer)
    ended = threading.Event()
    waits = threading.Thread(target=lambda: (saves.finish(), ended.set()), daemon=True)
    waits.start()
    assert ended.wait(10)
    saves.release()
    monkeypatch.undo()
    writer.gate.set()
    saves.start(state(), ("c",), writer)
    saves.finish()
    assert [path for path, _ in told] == ["c"]


@pytest.mark.parametrize("has_begun", [False, True])
def test_a_ctrl_c_while_the_thread_starts_leaves_nothing_to_wait_for(
    saves, writer, told, monkeypatch, has_begun
) -> None:
    """A thread that had begun is waited for as ever, and one that had not writes nothing later."""
    start = threading.Thread.start
    late = []

    def interrupted(thread) -> None:
        if thread.name == "checkpoint writer":
            if has_begun:
                start(thread)
                assert writer.begun.wait(30)
            else:
                late.append(thread)
            raise KeyboardInterrupt
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        saves.start(state(), ("a",), writer)
    monkeypatch.undo()
    for thread in late:  # the system was slow, and runs it only now
        thread.start()
        thread.join(30)
    writer.gate.set()
    saves.finish()
    written = ["a"] if has_begun else []
    assert [path for path, _ in told] == [path for path, _ in writer.written] == written


def test_of_two_files_the_first_counts_if_the_second_fails(saves, told) -> None:
    """What is durable is told of, and the failure names the other file."""

    def write(checkpoint, path) -> str:
        if path == "b":
            raise OSError("gone")
        return path

    saves.start(state(), ("a", "b", "c"), write)
    with pytest.raises(CheckpointError, match="'b'"):
        saves.finish()
    assert [path for path, _ in told] == ["a"]
    saves.finish()


def test_a_save_that_is_told_of_may_save_again(writer) -> None:
    """A listener that saves, as one for backups may, is no deadlock."""
    told = []

    def tell(path) -> None:
        told.append(path)
        if path == "a":
            saves.start(state(), ("b",), writer)

    saves = BackgroundSaves(tell)
    writer.gate.set()
    saves.start(state(), ("a",), writer)
    saves.finish()
    assert told == ["a", "b"]


def test_a_long_wait_is_told(saves, writer, caplog, monkeypatch) -> None:
    """Waiting longer than a moment says for which file."""
    monkeypatch.setattr(background, "_PATIENCE_S", 0.0)
    saves.start(state(), ("slow.ckpt",), writer)
    assert writer.begun.wait(30)

    class Opener(logging.Handler):
        def emit(self, record) -> None:
            writer.gate.set()

    opener = Opener()
    logging.getLogger("trainer_hooks").addHandler(opener)
    try:
        saves.finish()
    finally:
        logging.getLogger("trainer_hooks").removeHandler(opener)
    assert "waiting until 'slow.ckpt' is written" in caplog.text


@pytest.mark.slow
def test_there_is_one_copy_at_most(saves, told) -> None:
    """However many saves there are, the copies lie in the same memory, which is let go at last."""
    places, kept = [], []

    def write(checkpoint, path) -> str:
        places.append(checkpoint["x"].data_ptr())
        kept.append(weakref.ref(checkpoint["x"].untyped_storage()))
        return path

    for number in range(4):
        saves.start(state(number), (str(number),), write)
    saves.finish()
    assert len(set(places)) == 1
    saves.release()
    gc.collect()
    assert saves._copier._buffers == {}


@pytest.mark.slow
def test_an_exit_waits(tmp_path) -> None:
    """A process that ends right after a save leaves the whole file."""
    script = textwrap.dedent(
        """
        import sys, threading
        from pathlib import Path
        from trainer_hooks.checkpoint.background import BackgroundSaves
        main = threading.main_thread()
        def write(checkpoint, path):
            main.join()  # the main thread has run to its end
            Path(path).write_text("whole")
            return path
        BackgroundSaves(print).start({}, (sys.argv[1],), write)
        """
    )
    path = tmp_path / "a"
    subprocess.run([sys.executable, "-W", "error", "-c", script, str(path)], check=True, timeout=60)
    assert path.read_text() == "whole"
