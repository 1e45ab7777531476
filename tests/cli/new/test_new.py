"""`trainer-hooks new`: what it writes passes its own tests, ruff and mypy, and what it refuses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainer_hooks.cli.main import main

ROOT = Path(__file__).parents[3]


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a module of Python in a folder, with this checkout."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, "-m", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """A new project."""
    folder = tmp_path_factory.mktemp("projects") / "my-rings"
    assert main(["new", "my-rings", "--dir", str(folder)]) == 0
    return folder


@pytest.mark.slow
def test_a_new_project_passes_its_own_tests(project: Path) -> None:
    """Its tests pass: the config trains, and the callback keeps the contract."""
    done = run(project, "pytest", "-q", "-p", "no:cacheprovider")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [["ruff", "check", "."], ["ruff", "format", "--check", "."], ["mypy"]], ids=str
)
def test_a_new_project_is_clean(project: Path, words: list[str]) -> None:
    """ruff and strict mypy, as the project sets them up, have nothing to say."""
    done = run(project, *words)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_the_command_of_its_readme_trains(project: Path) -> None:
    """What the README says is what trains."""
    words = "fit --config config.yaml"
    assert f"trainer-hooks {words}" in (project / "README.md").read_text()
    done = run(project, "trainer_hooks", *words.split())
    assert done.returncode == 0, done.stderr
    assert (project / "trainer_logs" / "version_0" / "config.yaml").exists()


def test_nothing_is_overwritten(tmp_path, monkeypatch, capsys) -> None:
    """A folder that holds something is refused in one line."""
    monkeypatch.chdir(tmp_path)
    Path("mine").mkdir()
    Path("mine/work.py").touch()
    assert main(["new", "mine"]) == 2
    assert capsys.readouterr().err == (
        "trainer-hooks new: error: mine is there already: nothing is overwritten. Name a new or "
        "empty folder with --dir.\n"
    )
    assert [path.name for path in Path("mine").iterdir()] == ["work.py"]


@pytest.mark.parametrize("name", ["", "../up", "class", "json", "1st", "trainer-hooks"])
def test_a_name_that_cannot_be_a_package_is_refused(name, tmp_path, monkeypatch, capsys) -> None:
    """A name that no package can have, or one has already, is refused, and nothing is written."""
    monkeypatch.chdir(tmp_path)
    assert main(["new", name]) == 2
    assert capsys.readouterr().err.startswith("trainer-hooks new: error: the name ")
    assert list(tmp_path.iterdir()) == []
