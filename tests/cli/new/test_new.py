"""`trainer-hooks new`: what it writes passes its own tests, ruff and mypy, and what it refuses."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import warm_python

from trainer_hooks.cli.main import main

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence

ROOT = Path(__file__).parents[3]


def run(folder: Path, *words: str, typed: Sequence[Path] = ()) -> subprocess.CompletedProcess[str]:
    """Run a module of Python in a folder, with this checkout; mypy looks in `typed` for others."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return warm_python.run(
        [sys.executable, "-m", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "MYPYPATH": os.pathsep.join(map(str, typed))},
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


@pytest.mark.posix
def test_the_next_command_can_be_pasted(tmp_path, capsys) -> None:
    """A folder with a space in its name is quoted for the shell."""
    folder = tmp_path / "with space"
    assert main(["new", "my-rings", "--dir", str(folder)]) == 0
    assert f"\n  cd {shlex.quote(str(folder))}\n" in capsys.readouterr().out


@pytest.mark.slow
def test_a_new_project_passes_its_own_tests(project: Path) -> None:
    """Its tests pass: the config trains, and the callback keeps the contract."""
    done = run(project, "pytest", "-q", "-p", "no:cacheprovider")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


@pytest.mark.parametrize("words", [["check", "."], ["format", "--check", "."]], ids=str)
def test_a_new_project_is_clean(project: Path, words: list[str]) -> None:
    """ruff, as the project sets it up, has nothing to say."""
    done = run(project, "ruff", *words)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.exhaustive
def test_a_new_project_and_a_new_plugin_are_typed(project: Path, tmp_path, monkeypatch) -> None:
    """Strict mypy finds nothing in either, and does find a wrong argument."""
    pytest.importorskip("mypy")
    monkeypatch.chdir(tmp_path)
    assert main(["plugins", "new", "acme-rate"]) == 0
    set_up = tomllib.loads((project / "pyproject.toml").read_text())["tool"]["mypy"]
    assert set_up == {"strict": True, "files": ["my_rings", "tests"]}
    wrong = tmp_path / "wrong.py"
    wrong.write_text("from my_rings.module import Net\n\nNet(2, 3, hidden='wide')\n")
    looked_at = [project / "my_rings", project / "tests", *Path("acme-rate").rglob("*.py"), wrong]
    done = run(
        tmp_path, "mypy", "--config-file", str(ROOT / "tests" / "types.ini"),
        "--cache-dir", str(tmp_path / "cache"), *map(str, looked_at),
        typed=[ROOT, project, tmp_path / "acme-rate" / "src"],
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    first, last = done.stdout.strip().splitlines()
    assert first.startswith('wrong.py:3: error: Argument "hidden" to "Net"')
    assert "Found 1 error" in last


@pytest.fixture(scope="module")
def own_loop(tmp_path_factory) -> Path:
    """A new project with a loop of its own."""
    folder = tmp_path_factory.mktemp("projects") / "my-loop"
    assert main(["new", "my-loop", "--own-loop", "--dir", str(folder)]) == 0
    return folder


@pytest.mark.exhaustive
def test_a_new_project_with_a_loop_of_its_own(own_loop: Path, tmp_path) -> None:
    """It passes its own tests, ruff and mypy; its command trains, and goes on with more epochs."""
    done = run(own_loop, "pytest", "-q", "-p", "no:cacheprovider")
    assert "2 passed" in done.stdout, done.stdout + done.stderr
    for words in (["check", "."], ["format", "--check", "."]):
        done = run(own_loop, "ruff", *words)
        assert done.returncode == 0, done.stdout + done.stderr
    pytest.importorskip("mypy")
    done = run(
        tmp_path, "mypy", "--config-file", str(ROOT / "tests" / "types.ini"),
        "--cache-dir", str(tmp_path / "cache"), str(own_loop / "my_loop"), typed=[ROOT, own_loop],
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    copied = shutil.copytree(own_loop, tmp_path / "copied")
    assert "python -m my_loop.train" in (copied / "README.md").read_text()
    for epochs in ("2", "3"):
        done = run(copied, "my_loop.train", "--max-epochs", epochs)
        assert done.returncode == 0, done.stderr
        assert f"Run ended at epoch {epochs}, " in done.stderr


@pytest.mark.slow
def test_the_command_of_its_readme_trains(project: Path, tmp_path) -> None:
    """What the README says is what trains."""
    words = "fit --config config.yaml"
    assert f"trainer-hooks {words}" in (project / "README.md").read_text()
    copied = shutil.copytree(project, tmp_path / "copied")
    done = run(copied, "trainer_hooks", *words.split())
    assert done.returncode == 0, done.stderr
    assert (copied / "trainer_logs" / "version_0" / "config.yaml").exists()


@pytest.mark.exhaustive
def test_each_command_of_a_new_project(project: Path, tmp_path) -> None:
    """Training, evaluation and prediction with the config end well and without a warning."""
    copied = shutil.copytree(project, tmp_path / "copied")
    line = ("--config", "config.yaml")
    for words in (
        ["fit", *line],
        *([name, *line] for name in ("validate", "test", "predict")),
        *([name, *line, "--ckpt_path", "best"] for name in ("validate", "test", "predict")),
        ["fit", *line, "--ckpt_path", "auto", "--trainer.max_epochs", "6"],
    ):
        done = run(copied, "trainer_hooks", *words)
        assert done.returncode == 0, (words, done.stderr)
        assert "Warning" not in done.stderr, (words, done.stderr)
    ended, way_on = done.stderr.splitlines()[-2:]
    assert ended.startswith("fit ended at epoch 6, ")
    words = shlex.split(way_on.partition(": ")[2])
    assert words[:4] == ["python", "-m", "trainer_hooks", "fit"]
    done = run(copied, *words[2:])
    assert done.returncode == 0, done.stderr
    assert "fit ended at epoch 12, " in done.stderr


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


@pytest.mark.parametrize(
    "name", ["", "../up", "class", "json", "1st", "trainer-hooks", "tests", "a b", "übung"]
)
def test_a_name_that_cannot_be_a_package_is_refused(name, tmp_path, monkeypatch, capsys) -> None:
    """A name that no package can have, or one has already, is refused, and nothing is written."""
    monkeypatch.chdir(tmp_path)
    assert main(["new", name]) == 2
    assert capsys.readouterr().err.startswith("trainer-hooks new: error: the name ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["None", "my_Project.X", "a--b", "x"])
def test_an_odd_name_makes_a_project(name, tmp_path, monkeypatch) -> None:
    """A name that can be a package's once it is written small is taken, into any folder."""
    monkeypatch.chdir(tmp_path)
    assert main(["new", name, "--dir", f"a folder/{name} (new)"]) == 0
    written = tmp_path / "a folder" / f"{name} (new)"
    set_up = tomllib.loads((written / "pyproject.toml").read_text())
    package = set_up["tool"]["mypy"]["files"][0]
    assert package.isidentifier()
    assert (written / package / "module.py").exists()
    assert f"class_path: {package}.module.Net" in (written / "config.yaml").read_text()
