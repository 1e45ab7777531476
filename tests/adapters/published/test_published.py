"""Callbacks that others have published run in our Trainer, as the table in the docs says."""

from __future__ import annotations

import ast
import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NOTED = json.loads((HERE / "published.json").read_text(encoding="utf-8"))


def _defined() -> dict[str, tuple[str, str]]:
    """The names of the cases, with the packages that each needs; no case is imported to look."""
    found = {}
    for file in ("of_ignite.py", "of_lightning.py", "of_transformers.py"):
        for node in ast.parse((HERE / file).read_text(encoding="utf-8")).body:
            for call in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
                assert isinstance(call, ast.Call)
                package, what = (ast.literal_eval(argument) for argument in call.args)
                named = {word.arg: ast.literal_eval(word.value) for word in call.keywords}
                found[f"{package} {what}"] = (package, named.get("by", package))
    return found


CASES = _defined()


def _missing(name: str) -> str:
    """The first package of a case that is not installed, or an empty text."""
    for package in CASES[name]:
        try:
            importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            return package
    return ""


def test_the_table_has_a_row_for_each_case() -> None:
    """What the docs' table is made of is what was tried, in that order, twenty at least."""
    assert list(NOTED) == list(CASES)
    assert len(NOTED) >= 20
    assert len({package for package, _ in CASES.values()}) >= 15
    assert all(row["runs"] or row["why"] for row in NOTED.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_it_does_what_the_table_says(name: str) -> None:
    """A case whose packages are installed runs, or fails as it is told that it does."""
    missing = _missing(name)
    if missing:
        pytest.skip(f"needs {missing}")
    done = subprocess.run(
        [sys.executable, HERE / "run.py", name],
        capture_output=True, text=True, timeout=320, check=False,
        env={**os.environ, "PYTHONPATH": str(HERE.parents[2])},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
