"""Virtual environments with a few installed distributions, made without a network."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement


def distributions_for(requirements: list[str]) -> set[str]:
    """Return the names of the installed distributions that requirements bring, theirs included.

    A requirement that is not installed is left out: the environment then lacks it, as it should.
    """
    pending, seen = [Requirement(line) for line in requirements], set()
    names: set[str] = set()
    while pending:
        requirement = pending.pop()
        key = (requirement.name.lower(), frozenset(requirement.extras))
        if key in seen:
            continue
        seen.add(key)
        try:
            needed = distribution(requirement.name).requires or []
        except PackageNotFoundError:
            continue
        names.add(requirement.name)
        for line in needed:
            child = Requirement(line)
            extras = [*requirement.extras, ""]
            if child.marker is None or any(child.marker.evaluate({"extra": e}) for e in extras):
                pending.append(child)
    return names


def make_environment(folder: Path, requirements: list[str]) -> Path:
    """Make a virtual environment and return its Python.

    Args:
        folder: a new folder.
        requirements: what is to be importable there; its files are links to those of this
            environment, since a copy of torch takes a minute.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=120)
    (site,) = folder.glob("lib/python*/site-packages")
    for name in distributions_for(requirements):
        files = distribution(name).files or []
        for top in {file.parts[0] for file in files} - {"..", "__pycache__"}:
            source = Path(str(distribution(name).locate_file(top)))
            target = site / top
            if not target.exists():
                target.symlink_to(source, target_is_directory=source.is_dir())
    return folder / "bin" / "python"


def install_wheel(wheel: Path, python: Path) -> None:
    """Install a wheel, without its requirements, into the environment of a Python."""
    pip = [sys.executable, "-m", "pip", "--python", python, "install"]
    options = ["--disable-pip-version-check", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, *options, wheel], check=True, timeout=300)
