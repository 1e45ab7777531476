"""Run pytest with the plugins of `tests/support` on files that a test writes."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import warm_python

if TYPE_CHECKING:
    import subprocess

SUPPORT = Path(__file__).parent


def without_pytest() -> dict[str, str]:
    """Return the environment without the variables of pytest and its workers."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}


def pytest_in(folder: Path, *words: str) -> subprocess.CompletedProcess:
    """Run pytest in a folder, in a process that finds the plugins of this checkout's tests."""
    environ = {**without_pytest(), "PYTHONPATH": str(SUPPORT)}
    return warm_python.run(
        [sys.executable, *words], cwd=folder, env=environ,
        capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip


def written(folder: Path, files: dict[str, str]) -> Path:
    """Write files, dedented, into a folder that is pytest's root, and return it."""
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = exhaustive:\n    slow:\n")
    for name, text in files.items():
        (folder / name).write_text(re.sub("^        ", "", text, flags=re.MULTILINE))
    return folder
