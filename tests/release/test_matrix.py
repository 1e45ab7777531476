"""`.ci/matrix`: a row that fails is told, the others go on, and nothing is left behind."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import select
import subprocess
import sys
from collections import namedtuple
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from trainer_hooks._version import TESTED

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / ".ci/matrix"


@pytest.fixture
def matrix(monkeypatch, tmp_path) -> ModuleType:
    """The script as a module, whose handlers of signals are left out."""
    loader = importlib.machinery.SourceFileLoader("matrix_of_ci", str(SCRIPT))
    spec = importlib.util.spec_from_loader("matrix_of_ci", loader)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # beside the script
    monkeypatch.setitem(sys.modules, "matrix_of_ci", module)
    loader.exec_module(module)
    monkeypatch.setattr(module.signal, "signal", lambda *_: None)
    monkeypatch.setattr(module.tempfile, "tempdir", str(tmp_path))
    return module


def command(path: Path, text: str) -> Path:
    """Write a command for the shell."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.mark.slow
def test_a_python_that_is_not_there_is_one_line() -> None:
    """In the table, on the other output, and in the exit code; the next row is tried."""
    done = subprocess.run(
        [sys.executable, SCRIPT, "3.99:2.8.0", "no-such-python:2.13.0"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stdout.splitlines()[-2:] == [
        "| 3.99 | 2.8.0 | there is no Python 3.99 here |  |  |",
        "| no-such-python | 2.13.0 | there is no Python no-such-python here |  |  |",
    ]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("pair", ["3.12", "3.12:", ":2.8.0", "3.12:newest"])
def test_a_pair_that_is_none_is_refused(matrix, pair, capsys) -> None:
    """Before anything is installed."""
    with pytest.raises(SystemExit) as ended:
        matrix.main([pair])
    assert ended.value.code == 2
    assert "is no PYTHON:TORCH such as 3.12:2.13.0" in capsys.readouterr().err


def test_a_command_of_another_version_is_passed_over(matrix, tmp_path, monkeypatch) -> None:
    """A shim of pyenv may fail; the newest of its versions that fits is taken."""
    command(tmp_path / "bin" / "python3.12", "echo pyenv: command not found >&2; exit 127")
    for version in ("3.12.1", "3.12.4", "3.1.2"):
        command(tmp_path / "pyenv" / "versions" / version / "bin" / "python", f"echo {version}")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    versions = tmp_path / "pyenv" / "versions"
    assert matrix.find_python("3.12") == str(versions / "3.12.4" / "bin" / "python")
    assert matrix.find_python("3.12.1") == str(versions / "3.12.1" / "bin" / "python")
    own = command(tmp_path / "own", "echo 3.15.0")
    assert matrix.find_python(str(own)) == str(own)
    with pytest.raises(matrix.RowError, match=r"no Python 3\.13 here"):
        matrix.find_python("3.13")


def test_a_row_that_fails_leaves_the_others_and_no_files(matrix, tmp_path, monkeypatch, capsys):
    """Each row has a folder of its own, which is gone before the next one begins."""
    folders, commits = [], []

    def run_row(row, work, logs, jobs, commit) -> None:
        assert [folder.exists() for folder in folders] == [False] * len(folders)
        folders.append(work)
        commits.append(commit)
        (work / "environment").mkdir()
        if row.torch == "2.8.0":
            raise matrix.RowError("cannot be installed")
        row.cells[:] = ["3.12.1", "2.13.0+cpu", "0 failed, 9 passed", "passed", "50 same"]

    monkeypatch.setattr(matrix, "run_row", run_row)
    assert matrix.main(["3.12:2.8.0", "3.12:2.13.0"]) == 1
    assert [folder.exists() for folder in folders] == [False, False]
    head, _, *table = capsys.readouterr().out.splitlines()
    # the commit that the rows were given, whatever was committed meanwhile
    assert head.endswith(f", {sys.platform}, commit {commits[0][:8]}:")
    assert table == [
        "| Python | torch | fast tests | demo | 50 drawn resumes |",
        "|---|---|---|---|---|",
        "| 3.12 | 2.8.0 | cannot be installed |  |  |",
        "| 3.12.1 | 2.13.0+cpu | 0 failed, 9 passed | passed | 50 same |",
    ]
    assert matrix.main(["3.12:2.13.0"]) == 0
    folders.clear()
    assert matrix.main([]) == 1  # those of the package's table
    assert len(folders) == len(TESTED)


def test_a_full_disk_is_told_before_anything_is_installed(matrix, tmp_path, monkeypatch) -> None:
    """With the space that is needed."""
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(matrix.shutil, "disk_usage", lambda folder: usage(7e9))
    row = matrix.Row(sys.executable, "2.13.0", [], [])
    with pytest.raises(matrix.RowError, match=r"needs 15 GB in .*, which has 7$"):
        matrix.make_environment(row, tmp_path, tmp_path)


@pytest.mark.slow
def test_what_hangs_is_ended_with_its_children(matrix, tmp_path) -> None:
    """Its output stays, for the reason."""
    script = command(tmp_path / "hangs", "sleep 600 & echo $!; wait")
    log = tmp_path / "log.txt"
    assert matrix.run([str(script)], log, tmp_path, limit=2) is None
    with suppress(ProcessLookupError):  # it has ended, and somebody has collected it
        ended = os.pidfd_open(int(log.read_text()))
        assert select.select([ended], [], [], 60)[0]
        os.close(ended)


@pytest.mark.parametrize(
    ("output", "code", "cell", "failures"),
    [
        ("9 passed in 1s", 0, "0 failed, 9 passed", []),
        (
            "FAILED tests/a.py::b - E\nERROR tests/c.py\n1 failed, 1203 passed, 1 error in 9s",
            1,
            "2 failed, 1,203 passed",
            ["ERROR tests/c.py", "FAILED tests/a.py::b - E"],
        ),
        ("no module named pytest", 1, "did not run", ["no module named pytest"]),
        # a test that failed beside others and passed alone fails no run
        ("1 failed, 8 passed in 3s", 0, "0 failed, 8 passed", []),
    ],
)
def test_the_result_of_the_tests_is_read(matrix, tmp_path, output, code, cell, failures) -> None:
    """Errors count as failures, and a run without a count is none."""
    command(tmp_path / "pytest", f"echo '{output}'; exit {code}")
    row = matrix.Row("3.12", "2.13.0", [], [])
    assert matrix.run_fast_tests(row, tmp_path, tmp_path, tmp_path, "1") == cell
    assert row.failures == failures


@pytest.mark.parametrize(
    ("output", "code", "cell", "is_failed"),
    [
        ("50 configurations: 3 refused, 47 same", 0, "3 refused, 47 same", False),
        ("seed 7: ...\n50 configurations: 1 differs, 49 same", 1, "1 differs, 49 same", True),
        ("AssertionError: x", 1, "did not run", True),
    ],
)
def test_the_result_of_the_resumes_is_read(matrix, tmp_path, output, code, cell, is_failed):
    """One that differs fails the row."""
    command(tmp_path / "python", f"echo '{output}'; exit {code}")
    row = matrix.Row("3.12", "2.13.0", [], [])
    assert matrix.run_drawn_resumes(row, tmp_path, tmp_path, tmp_path, "1") == cell
    assert bool(row.failures) is is_failed


def test_the_pins_that_go_with_torch_are_left_out(matrix) -> None:
    """And no others."""
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    left_out = {pin.partition("==")[0] for pin in pins if matrix.PINNED_WITH_TORCH.match(pin)}
    assert {"torch", "torchmetrics", "pytorch-lightning"} <= left_out
    assert "pytest" not in left_out
