"""`trainer-hooks report --live`: the page on the loopback, which follows the runs."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import warm_python

from trainer_hooks._system import process_start
from trainer_hooks.cli.main import main
from trainer_hooks.cli.report import live

pytest.importorskip("jinja2")


def write(folder, lr, count, metric="val_loss", **more):
    """Write the folder of a run of so many steps."""
    folder.mkdir(parents=True, exist_ok=True)
    names = ["step", "epoch", metric, *more]
    rows = [[step, step // 5, 1 / (step + 1) + lr, *more.values()] for step in range(count)]
    (folder / "metrics.csv").write_text(
        "".join(",".join(map(str, r)) + "\n" for r in [names, *rows])
    )
    (folder / "hparams.json").write_text(json.dumps({"lr": lr}))
    return folder


def begin(folder, pid):
    """Write the journal of a training that a process has begun."""
    record = {
        "event": "start", "run": "a", "time": 1e9, "stage": "fit", "step": 0, "pid": pid,
        "process": process_start(pid), "hardware": {"host": socket.gethostname()},
    }  # fmt: skip
    (folder / "run.jsonl").write_text(json.dumps(record) + "\n")


@pytest.fixture
def report(tmp_path, monkeypatch):
    """The pages of a folder, whose files are looked at each time."""
    monkeypatch.setattr(live, "pause_after", lambda spent: 0.0)
    return live.LiveReport([tmp_path], None, with_machine=False)


def data_of(page: str) -> dict:
    return json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])


def test_a_page_is_made_when_files_have_changed(report, tmp_path) -> None:
    """New points, new runs, and a process that was killed and wrote nothing; else it is kept."""
    assert data_of(report.page()[1])["runs"] == []
    write(tmp_path / "v0", 0.1, 3)
    first = report.page()
    assert len(data_of(first[1])["axes"][0]["x"]) == 3
    assert report.page() == first
    write(tmp_path / "v0", 0.1, 5)
    second = report.page()
    assert second[0] != first[0]
    assert len(data_of(second[1])["axes"][0]["x"]) == 5
    write(tmp_path / "v1", 0.2, 4)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        begin(tmp_path / "v1", process.pid)
        rows = data_of(report.page()[1])["table"]["rows"]
        assert [(row["name"], row["state"]) for row in rows] == [
            ("lr=0.1", ""),
            ("lr=0.2", "running"),
        ]
        process.kill()
    rows = data_of(report.page()[1])["table"]["rows"]
    assert rows[1]["state"] == "killed"
    # the page of one, by its link
    alone = report.page(rows[1]["link"].partition("=")[2])[1]
    assert data_of(alone)["runs"] == ["v1"]


def test_half_a_file_leaves_the_page_as_it_was(report, tmp_path) -> None:
    """A file that is removed while it is read, too."""
    folder = write(tmp_path / "v0", 0.1, 3)
    page = report.page()
    (folder / "metrics.csv").write_bytes(b"\xff\xfe\x00")
    assert report.page()[1].partition("<main")[0].partition("Made by")[0] in page[1]
    shutil.rmtree(folder)
    assert "Nothing was logged" in report.page()[1]


@contextmanager
def serving(report):
    """Serve pages in a thread, which ends with the block also where a test fails."""
    with live._Server(report, 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def ask(report, tmp_path):
    """Ask the server of the pages, as a browser does."""
    write(tmp_path / "v0", 0.1, 3)
    with serving(report) as server:

        def ask(path="/", **headers):
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            request = Request(f"http://127.0.0.1:{server.server_port}{path}", headers=named)
            try:
                with urlopen(request, timeout=60) as answer:
                    return answer.status, dict(answer.headers), answer.read().decode()
            except HTTPError as error:
                with error:
                    return error.code, dict(error.headers), error.read().decode()

        yield ask


def test_what_the_server_answers(ask) -> None:
    """The page; nothing where it is known; no other path, run or site."""
    status, headers, text = ask()
    assert (status, headers["Cache-Control"]) == (200, "no-store")
    assert "connect-src 'self'" in text
    assert ask(If_None_Match=headers["ETag"])[0] == 304
    assert ask("/../../etc/passwd")[0] == ask("/metrics.csv")[0] == 404
    assert "no such run" in ask("/?run=0")[2]
    assert ask(Host="evil.example:80")[0] == 403
    assert ask(Host="localhost:1")[0] == 200


def test_bad_input_is_one_line(tmp_path, capsys, monkeypatch) -> None:
    """A folder that is not there, a port that is none or taken, and options that do not fit."""
    monkeypatch.setattr(live.ThreadingHTTPServer, "serve_forever", None)
    write(tmp_path / "v0", 0.1, 3)
    write(tmp_path / "v1", 0.2, 3)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for words, told in (
            ([str(tmp_path / "none"), "--live"], "is not there: give the folder of runs"),
            ([str(tmp_path), "--live", "--port", port], f"port {port} cannot be used"),
            ([str(tmp_path), "--port", "8000"], "--port is of --live"),
            ([str(tmp_path), "--live", "-o", "x.html"], "--live writes no file"),
            ([str(tmp_path), "--live", "--monitor", "los"], "'los'"),
        ):
            assert main(["report", *words]) == 2
            out, err = capsys.readouterr()
            assert (out, err.count("\n")) == ("", 1)
            assert told in err
    for number in ("70000", "-1", "x"):
        with pytest.raises(SystemExit, match="2"):
            main(["report", str(tmp_path), "--live", f"--port={number}"])
        assert "a port is a whole number from 0 to 65535" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.posix
def test_the_command_ends_by_ctrl_c_and_when_its_folder_is_gone(tmp_path) -> None:
    """Quietly by the one, with a line after the other."""
    for ending in ("Ctrl-C", "gone"):
        folder = write(tmp_path / ending / "v0", 0.1, 3).parent
        command = [sys.executable, "-m", "trainer_hooks", "report", str(folder), "--live"]
        with warm_python.Popen(
            [*command, "--port", "0"], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            address = process.stdout.readline().split()[0]
            with urlopen(address, timeout=60) as answer:
                assert b"v0" in answer.read()
            if ending == "gone":
                shutil.rmtree(folder)
            else:
                process.send_signal(signal.SIGINT)
            out, err = process.communicate()
        expected = (0, "", "") if ending == "Ctrl-C" else (2, "", "is not there")
        assert (process.returncode, out) == expected[:2]
        assert expected[2] in err
        assert err.count("\n") == (ending == "gone")


def until(page, expression, expected):
    """Wait until an expression has a value; a page that is loaded again meanwhile has none."""
    deadline = time.monotonic() + 120
    while (
        page.evaluate(f"(() => {{ try {{ return {expression} }} catch {{ return null }} }})()")
        != expected
    ):
        assert time.monotonic() < deadline, (expression, page.evaluate(expression))
        page.wait_for_timeout(20)


@pytest.mark.exhaustive
def test_a_browser_follows(tmp_path, browser) -> None:
    """New points and rows come without a reload; what was chosen, zoomed and hidden stays."""
    for number in range(2):
        write(tmp_path / f"v{number}", 0.1 * (number + 1), 6)
    report = live.LiveReport([tmp_path], None, with_machine=False)
    faults: list[str] = []
    with serving(report) as server:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(120_000)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.goto(f"http://127.0.0.1:{server.server_port}/")
        page.locator("figure.chart .uplot").first.wait_for()
        page.evaluate("window.isSame = true")
        page.locator("#runs-filter").fill("lr")
        page.get_by_role("checkbox", name="draw lr=0.1").uncheck()
        plot = 'document.querySelector("figure.chart .plot")'
        until(page, f"{plot}.curves.map(c => c.name).join()", "lr=0.2")
        page.evaluate(f"{plot}.chart.setScale('x', {{min: 1, max: 3}})")
        write(tmp_path / "v1", 0.2, 40)
        until(page, f"{plot}.curves[0].x.length", 40)
        assert page.evaluate(f"{plot}.chart.scales.x.max") == 3
        write(tmp_path / "v2", 0.3, 8, acc=3)
        until(page, 'document.querySelectorAll("#runs-table tbody tr").length', 3)
        until(
            page,
            f"{plot}.curves.map(c => c.name).join()",
            "lr=0.2,lr=0.3",
        )
        assert page.locator("#runs-filter").input_value() == "lr"
        assert not page.get_by_role("checkbox", name="draw lr=0.1").is_checked()
        assert page.get_by_role("columnheader", name="acc last").is_visible()
        assert page.locator("figure.chart figcaption").all_inner_texts() == ["val_loss", "acc"]
        assert page.evaluate("window.isSame")
        assert "changed at" in page.locator("#live").inner_text()
        page.get_by_role("link", name="lr=0.3").click()
        page.locator("figure.chart .uplot").first.wait_for()
        assert page.title() == "v2 - run report"
    page.get_by_text("The command has ended").wait_for()
    page.close()
    assert faults == []
