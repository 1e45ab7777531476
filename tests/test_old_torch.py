"""A torch that is too old: the package says so in one line, before anything else fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainer_hooks import _version
from trainer_hooks._version import OLDEST_TORCH, installed_torch, old_torch

ROOT = Path(__file__).parents[1]

LINE = (
    f"trainer_hooks {_version.__version__} needs torch {OLDEST_TORCH} or newer, and torch "
    f"2.6.0+cpu is installed: pip install 'torch>={OLDEST_TORCH}'"
)


@pytest.fixture
def old(tmp_path) -> Path:
    """A folder with a torch 2.6 that fails as soon as it is imported."""
    return stand_in(tmp_path, "__version__ = '2.6.0+cpu'\n")


def stand_in(folder: Path, version: str) -> Path:
    """Write a package torch with a file of its version, and return the folder around it."""
    (folder / "torch").mkdir()
    (folder / "torch" / "__init__.py").write_text("raise AttributeError('of an old torch')\n")
    (folder / "torch" / "version.py").write_text(version, encoding="utf-8")
    return folder


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python where the stand-in comes first."""
    return subprocess.run(
        [sys.executable, *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_the_import_says_so(old) -> None:
    """As a warning, since pytest and Lightning import the package where it is only installed."""
    done = run(old, "-c", "import trainer_hooks")
    # Python 3.13 shows the statement, too
    told, *statement = done.stderr.splitlines()
    assert (done.returncode, told) == (0, f"<string>:1: TrainerHooksWarning: {LINE}")
    assert [line.strip() for line in statement] in ([], ["import trainer_hooks"])


@pytest.mark.parametrize(
    "statement",
    [
        "from trainer_hooks import Trainer",
        "from trainer_hooks import Callback",
        "from trainer_hooks.callbacks import EarlyStopping",
        "from trainer_hooks.loggers import CSVLogger",
        "from trainer_hooks.testing import check_callback",
        "import trainer_hooks; trainer_hooks.Module",
    ],
)
def test_each_name_is_an_error_that_says_so(old, statement) -> None:
    """No torch is imported, whose own error would say less."""
    done = run(old, "-W", "ignore", "-c", statement)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"ImportError: {LINE}"
    assert "of an old torch" not in done.stderr


@pytest.mark.parametrize("words", [("fit",), ("demo", "--fast"), ("plugins", "list")])
def test_a_command_says_so(old, words) -> None:
    """In one line, with the exit code of a failure."""
    done = run(old, "-W", "ignore", "-m", "trainer_hooks", *words)
    assert (done.returncode, done.stderr) == (1, f"trainer-hooks {words[0]}: {LINE}\n")


def test_the_help_and_the_version_are_there_all_the_same(old) -> None:
    """They need no torch."""
    assert run(old, "-W", "ignore", "-m", "trainer_hooks", "--help").returncode == 0
    assert run(old, "-W", "ignore", "-m", "trainer_hooks", "--version").returncode == 0


@pytest.mark.slow
def test_the_doctor_says_so_among_all_else(tmp_path) -> None:
    """It examines the rest, and names the cure."""
    folder = stand_in(tmp_path, "__version__ = '2.6.0+cpu'\n")
    info = folder / "torch-2.6.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.6.0+cpu\n")
    done = run(folder, "-m", "trainer_hooks", "doctor", "--json")
    assert done.returncode == 1
    facts = json.loads(done.stdout)
    cure = f"pip install 'torch>={OLDEST_TORCH}'"
    assert [fault for fault in facts["broken"] if fault.endswith(cure)], facts["broken"]
    assert facts["packages"]["numpy"] is not None


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("__version__ = '2.13.0a0+git123'\n", "2.13.0a0+git123"),
        ('import typing\n__version__ = "2.15.0.dev2026+cpu"\n', "2.15.0.dev2026+cpu"),
        (f"__version__ = '{OLDEST_TORCH}.0'\n", f"{OLDEST_TORCH}.0"),
        ("__version__ = 'unknown'\n", "unknown"),
        ("debug = False\n", ""),
        ("", ""),
    ],
)
def test_other_versions_are_no_fault(tmp_path, monkeypatch, text, version) -> None:
    """New ones, those before a release, and those that cannot be read."""
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.syspath_prepend(stand_in(tmp_path, text))
    assert installed_torch() == version
    assert old_torch() == ""


def test_a_torch_that_cannot_be_found_or_read_is_no_fault(tmp_path, monkeypatch) -> None:
    """Its import says what is wrong."""
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert installed_torch() == ""
    (stand_in(tmp_path, "") / "torch" / "version.py").write_bytes(b"__version__ = '\xff'")
    sys.path_importer_cache.pop(str(tmp_path), None)
    assert installed_torch() == ""
    (tmp_path / "torch" / "version.py").unlink()
    assert installed_torch() == ""
    assert old_torch() == ""


def test_the_version_of_a_loaded_torch_is_asked_for_there(monkeypatch) -> None:
    """No file is read for it."""
    monkeypatch.setattr(_version.PathFinder, "find_spec", None)
    assert installed_torch() == sys.modules["torch"].__version__


def test_the_look_reads_one_file_and_imports_nothing() -> None:
    """It costs less than a millisecond, counted in files and modules and not by a clock."""
    probe = (
        "import sys, importlib.machinery\n"
        "opened = []\n"
        "from trainer_hooks import _version\n"
        "before = set(sys.modules)\n"
        "sys.addaudithook(lambda e, a: opened.append(str(a[0])) if e == 'open' else None)\n"
        "assert _version.installed_torch()\n"
        "print(len(opened), sorted(set(sys.modules) - before), 'torch' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "1 [] False\n"
