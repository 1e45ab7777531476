"""`trainer-hooks watch`: the runs of a folder on a real terminal, as they go on."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest
from launchers import heed_ctrl_c
from rich.console import Console

from trainer_hooks._system import IS_WINDOWS, process_start
from trainer_hooks.cli.main import main
from trainer_hooks.cli.report.comparison import Objective
from trainer_hooks.cli.report.watch import RunWatcher


def begin(folder, *, lr, pid=None, epochs=4):
    """Write the folder of a run that has begun; by this process unless another is given."""
    folder.mkdir(parents=True)
    (folder / "metrics.csv").write_text("step,epoch,val_loss\n")
    (folder / "hparams.json").write_text(json.dumps({"lr": lr}))
    pid = os.getpid() if pid is None else pid
    record(
        folder, "start", time=1e9, stage="fit", step=0, pid=pid, process=process_start(pid),
        max_epochs=epochs, hardware={"host": socket.gethostname()},
    )  # fmt: skip
    return folder


def record(folder, event, **values):
    with (folder / "run.jsonl").open("a") as file:
        file.write(json.dumps({"event": event, "run": "a", **values}) + "\n")


def log(folder, step, value):
    with (folder / "metrics.csv").open("a") as file:
        file.write(f"{step},{step},{value}\n")


def test_the_table_of_runs(tmp_path, capsys) -> None:
    """Each run has its name, state, progress and values, the running ones first."""
    done = begin(tmp_path / "a", lr=0.1)
    log(done, 0, 3)
    log(done, 1, 1.5)
    log(done, 2, 2)
    record(done, "end", status="finished", epoch=4, global_step=40, time=1e9 + 75)
    begin(tmp_path / "b", lr=0.2, pid=2**22 + 1)
    begin(tmp_path / "c", lr=0.3)
    header, found = RunWatcher(tmp_path, None).rows()
    rows = [dict(zip(header, row.cells, strict=True)) for row in found]
    assert [row["run"] for row in rows] == ["lr=0.3", "lr=0.1", "lr=0.2"]
    assert [row["state"] for row in rows] == ["running", "finished", "killed"]
    assert [row["progress"] for row in rows] == ["epoch 0/4", "epoch 4/4", "epoch 0/4"]
    finished = rows[1]
    assert (finished["val_loss"], finished["best"]) == ("2", "1.5")
    assert (finished["steps"], finished["time"]) == ("40", "1 min 15 s")
    assert [row.share for row in found] == [0.0, 1.0, 0.0]
    # into a pipe it is printed once
    assert main(["watch", str(tmp_path), "--monitor", "val_loss", "--mode", "max"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert lines[3].split()[:6] == ["lr=0.1", "finished", "epoch", "4/4", "40", "2"]
    assert lines[3].split()[6] == "3"


def test_the_best_run_stands_first(tmp_path) -> None:
    """Of the runs that have ended, by the last value of the metric; those without one are last."""
    for name, lr, value in (("a", 0.1, 3), ("b", 0.2, 1), ("c", 0.3, None), ("d", 0.4, 2)):
        folder = begin(tmp_path / name, lr=lr)
        if value is not None:
            log(folder, 0, value)
        record(folder, "end", status="finished", epoch=4, global_step=40, time=1e9 + 9.6)
    rows = RunWatcher(tmp_path, None).rows()[1]
    assert [row.cells[0] for row in rows] == ["lr=0.2", "lr=0.4", "lr=0.1", "lr=0.3"]
    assert rows[0].cells[-1] == "10 s"
    highest = RunWatcher(tmp_path, Objective("val_loss", "max")).rows()[1]
    assert [row.cells[0] for row in highest] == ["lr=0.1", "lr=0.4", "lr=0.2", "lr=0.3"]


@pytest.mark.parametrize(("width", "has_bar"), [(60, False), (80, False), (120, True)])
def test_names_stay_on_a_narrow_terminal(tmp_path, width, has_bar) -> None:
    """The bar and the lesser columns give way; no cell is cut off."""
    for name, lr in (("a", 0.001), ("b", 0.002)):
        folder = begin(tmp_path / name, lr=lr, epochs=400)
        log(folder, 0, 123.456)
        record(folder, "sample", epoch=200, global_step=123_456, time=1e9 + 5000)
    console = Console(width=width, height=24, file=io.StringIO(), legacy_windows=False)
    console.print(RunWatcher(tmp_path, None).table(console))
    lines = console.file.getvalue().splitlines()
    for shown in ("lr=0.001", "running", "epoch 200/400", "123.456"):
        assert any(shown in line for line in lines), lines
    assert any("━" in line for line in lines) == has_bar
    assert any("123,456" in line for line in lines) == has_bar


def test_a_run_that_does_not_change_is_read_once(tmp_path, monkeypatch) -> None:
    """The files of finished runs cost nothing but a look at their times."""
    folders = [begin(tmp_path / name, lr=lr) for lr, name in enumerate("ab")]
    read = []
    whole = "trainer_hooks.cli.report.changed_runs.read_run"
    from trainer_hooks.cli.report.logged_run import read_run

    monkeypatch.setattr(whole, lambda folder, *rest: read.append(folder) or read_run(folder, *rest))
    watcher = RunWatcher(tmp_path, None)
    watcher.rows()
    watcher.rows()
    assert read == folders
    log(folders[1], 0, 2)
    watcher.rows()
    assert read == [*folders, folders[1]]


def test_folders_that_cannot_be_watched(tmp_path, capsys) -> None:
    """One that is gone is an error in one line; an empty one has no run yet."""
    assert main(["watch", str(tmp_path / "none")]) == 2
    assert "is not there" in capsys.readouterr().err
    assert main(["watch", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"no run in {str(tmp_path)!r} yet\n"
    (begin(tmp_path / "run", lr=1) / "metrics.csv").write_bytes(b"\x89PNG")
    assert main(["watch", str(tmp_path)]) == 0
    assert main(["watch", str(tmp_path), "--mode", "max"]) == 2


@pytest.mark.slow
@pytest.mark.skipif(IS_WINDOWS, reason="a Unix terminal")
def test_a_terminal_follows_the_runs(tmp_path) -> None:
    """A new value and a new run appear by themselves; Ctrl-C ends it, as does the folder's end."""
    pyte = pytest.importorskip("pyte")
    import fcntl
    import pty
    import struct
    import termios

    folder = tmp_path / "runs"
    first = begin(folder / "a", lr=0.1)
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 110, 0, 0))
    command = [sys.executable, "-m", "trainer_hooks", "watch", str(folder)]
    environ = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "", "LINES": ""}
    process = subprocess.Popen(
        command, stdin=follower, stdout=follower, stderr=subprocess.PIPE, env=environ, text=True,
        preexec_fn=heed_ctrl_c,
    )  # fmt: skip
    os.close(follower)
    screen = pyte.Screen(110, 24)
    stream = pyte.ByteStream(screen)

    def until(*words):
        deadline = time.monotonic() + 120
        while not all(any(word in line for line in screen.display) for word in words):
            assert time.monotonic() < deadline, "\n".join(screen.display)
            stream.feed(os.read(leader, 65536))

    try:
        until("epoch 0/4", "running", " a ")
        log(first, 0, 0.625)
        record(first, "sample", epoch=1, global_step=10, time=1e9 + 5)
        until("0.625", "epoch 1/4")
        begin(folder / "b", lr=0.2)
        until("lr=0.1", "lr=0.2")
        record(first, "end", status="finished", epoch=4, global_step=40, time=1e9 + 9)
        until("finished", "epoch 4/4")
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=120) == 0
        assert process.stderr.read() == ""
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
        os.close(leader)
