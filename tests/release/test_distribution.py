"""The wheel and the sdist: what is in them, and that the wheel works where nothing else is."""

from __future__ import annotations

import email
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from clean_environments import install_wheel, make_environment
from packaging.requirements import Requirement

import trainer_hooks

ROOT = Path(__file__).parents[2]
VERSION = trainer_hooks.__version__
INFO = f"trainer_hooks-{VERSION}.dist-info"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LEFT_BEHIND = shutil.ignore_patterns(
    ".git", ".venv*", "*.egg-info", "__pycache__", "build", "dist", ".*_cache"
)


@pytest.fixture(scope="session")
def built(once) -> dict[str, Path]:
    """The wheel, built from the sdist, and the sdist, built from a copy of the checkout."""

    def build(folder: Path) -> dict[str, str]:
        # not in the checkout: setuptools writes into the folder that it builds
        source = shutil.copytree(ROOT, folder / "source", ignore=LEFT_BEHIND)
        words = [sys.executable, "-m", "build", "--no-isolation", "-o", folder / "dist", source]
        done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        (wheel,) = folder.glob("dist/*.whl")
        (sdist,) = folder.glob("dist/*.tar.gz")
        return {"wheel": str(wheel), "sdist": str(sdist)}

    return {kind: Path(path) for kind, path in once("release", build).items()}


@pytest.fixture(scope="session")
def metadata(built) -> email.message.Message:
    with zipfile.ZipFile(built["wheel"]) as wheel:
        return email.message_from_bytes(wheel.read(f"{INFO}/METADATA"))


@pytest.mark.exhaustive
def test_the_wheel_holds_the_package_and_nothing_else(built) -> None:
    """Each file of the package is in it, templates and stubs too; no test, no page, no cache."""
    package = {
        str(file.relative_to(ROOT))
        for file in (ROOT / "trainer_hooks").rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert "trainer_hooks/py.typed" in package
    assert any(name.startswith("trainer_hooks/cli/report/templates/") for name in package)
    assert any(name.startswith("trainer_hooks/cli/new/templates/.git") for name in package)
    licenses = [f"licenses/{name}" for name in PROJECT["license-files"]]
    info = ["METADATA", "RECORD", "WHEEL", "entry_points.txt", "top_level.txt", *licenses]
    with zipfile.ZipFile(built["wheel"]) as wheel:
        assert set(wheel.namelist()) == package | {f"{INFO}/{name}" for name in info}


@pytest.mark.exhaustive
def test_the_sdist_can_be_read_and_built(built) -> None:
    """It has what the build reads, the licence, the changelog and how to cite it, and no tests."""
    with tarfile.open(built["sdist"]) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert {
        "CHANGELOG.md", "CITATION.cff", "LICENSE", "README.md", "constraints.txt", "pyproject.toml",
        "trainer_hooks/py.typed",
    } <= names  # fmt: skip
    assert [name for name in names if name.startswith(("tests", "docs", ".ci"))] == []


@pytest.mark.exhaustive
def test_a_registry_would_take_them(built) -> None:
    """`twine check --strict` finds nothing wrong with the metadata or the description."""
    words = [sys.executable, "-m", "twine", "check", "--strict", *built.values()]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("PASSED") == 2


@pytest.mark.exhaustive
def test_the_metadata_is_that_of_the_project(metadata) -> None:
    """Version, licence and extras are those of pyproject.toml."""
    assert metadata["Version"] == VERSION
    assert metadata["License-Expression"] == PROJECT["license"]
    assert set(metadata.get_all("Provides-Extra")) == set(PROJECT["optional-dependencies"])


def ignore_ctrl_c() -> None:
    """Let this process ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@pytest.mark.exhaustive
def test_the_wheel_works_where_nothing_else_is(built, metadata, tmp_path) -> None:
    """With the declared dependencies alone it is imported, trains, and fills in its templates."""
    requirements = [
        line
        for line in metadata.get_all("Requires-Dist")
        if (marker := Requirement(line).marker) is None or marker.evaluate({"extra": "demo"})
    ]
    python = make_environment(tmp_path / "clean", requirements)
    install_wheel(built["wheel"], python)
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("TRAINER_HOOKS_", "PYTH"))}

    def run(*words: str) -> str:
        # as a job in the background, which the demo is, too
        done = subprocess.run(
            [python, "-W", "error", *words], cwd=tmp_path, env=environ,
            capture_output=True, text=True, timeout=300, check=False, preexec_fn=ignore_ctrl_c,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    imported = run("-c", "import trainer_hooks; print(trainer_hooks.__file__)")
    assert Path(imported.strip()).is_relative_to(tmp_path / "clean")
    assert run("-m", "trainer_hooks", "--version") == f"trainer-hooks {VERSION}\n"
    assert "is the run that was never interrupted" in run("-m", "trainer_hooks", "demo", "--fast")
    run("-m", "trainer_hooks", "new", "my-rings")
    assert (tmp_path / "my-rings" / ".gitignore").exists()
    run("-m", "trainer_hooks", "plugins", "new", "my-monitor")
    assert (tmp_path / "my-monitor" / "LICENSE").exists()


def test_the_oldest_dependencies_of_ci_are_the_bounds() -> None:
    """.ci/oldest.txt pins each dependency at the bound in pyproject.toml, but for torch."""
    lines = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["demo"]]
    bounds = {
        requirement.name: str(requirement.specifier).removeprefix(">=")
        for requirement in map(Requirement, lines)
    }
    del bounds["torch"]
    pinned = re.findall(r"^(\S+)==(\S+)$", (ROOT / ".ci/oldest.txt").read_text(), re.MULTILINE)
    assert dict(pinned) == bounds


def test_the_citation_is_of_this_version() -> None:
    """CITATION.cff names the version, the licence and the authors of the package."""
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {VERSION}\n" in citation
    # the licence of its own code; that of a script that it brings comes after it
    assert f"\nlicense: {PROJECT['license'].partition(' AND ')[0]}\n" in citation
    assert [f"  - name: {author['name']}" for author in PROJECT["authors"]] == re.findall(
        r"^  - name: .*$", citation, re.MULTILINE
    )
