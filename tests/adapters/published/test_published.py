"""Callbacks that others have published run in our Trainer, as the table in the docs says."""

from __future__ import annotations

import ast
import importlib.metadata
import json
import runpy
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest
import warm_python
from samples import one_in

HERE = Path(__file__).parent
NOTED = json.loads((HERE / "published.json").read_text(encoding="utf-8"))
FRAMEWORKS = {
    "of_ignite.py": "ignite.engine",
    "of_lightning.py": "pytorch_lightning",
    "of_transformers.py": "transformers.trainer",
    "compared_lightning.py": "pytorch_lightning",
    "compared_transformers.py": "transformers.trainer",
    "compared_composer.py": "composer",
    "compared_ignite.py": "ignite.engine",
}


@dataclass
class Defined:
    """A case as its file defines it."""

    name: str
    packages: tuple[str, str]
    fails: str
    framework: str


def _defined() -> dict[str, Defined]:
    """The cases by name; none is imported to look."""
    found = {}
    for file, framework in FRAMEWORKS.items():
        for node in ast.parse((HERE / file).read_text(encoding="utf-8")).body:
            for call in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
                assert isinstance(call, ast.Call)
                package, what = (ast.literal_eval(argument) for argument in call.args)
                named = {word.arg: ast.literal_eval(word.value) for word in call.keywords}
                name = f"{package} {what}"
                packages = package, named.get("by", package)
                found[name] = Defined(name, packages, named.get("fails", ""), framework)
    return found


CASES = _defined()


def _missing(name: str) -> str:
    """The first package of a case that is not installed, or an empty text."""
    for package in CASES[name].packages:
        try:
            importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            return package
    return ""


def test_the_table_has_a_row_for_each_case() -> None:
    """What the docs' table is made of is what was tried, in that order, twenty at least."""
    assert list(NOTED) == list(CASES)
    assert len(NOTED) >= 20
    assert len({case.packages[0] for case in CASES.values()}) >= 15
    assert all(row["runs"] or row["why"] for row in NOTED.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", one_in(16, CASES))
def test_it_does_what_the_table_says(name: str) -> None:
    """A case whose packages are installed runs, or fails as it is told that it does."""
    missing = _missing(name)
    if missing:
        pytest.skip(f"needs {missing}")
    case = CASES[name]
    framework = case.framework
    imports = (framework,) if find_spec(framework.partition(".")[0]) is not None else ()
    script = runpy.run_path(str(HERE / "run.py"))
    assert script["tried"](case, partial(warm_python.run, imports=imports)) == ""
