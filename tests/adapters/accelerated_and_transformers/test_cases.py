"""Callbacks of pytorch-accelerated and transformers do in our Trainer what they do in their own."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CASES = Path(__file__).with_name("cases.py")
TEXT = CASES.read_text(encoding="utf-8")


def _names(framework: str) -> list[str]:
    """The cases of a framework, which is not imported to look."""
    listed = TEXT.partition(f"\n{framework.upper()} = {{")[2].partition("\n}")[0]
    lines = [line for line in listed.splitlines() if line.startswith('    "')]
    return [f"{framework} {line.split(chr(34))[1]}" for line in lines]


NAMES = [*_names("accelerated"), *_names("transformers")]

pytestmark = [
    pytest.mark.skipif(
        not all(map(importlib.util.find_spec, ("pytorch_accelerated", "transformers"))),
        reason="needs pytorch-accelerated and transformers",
    ),
    pytest.mark.exhaustive,
]


@pytest.fixture(scope="module")
def results(results_of) -> dict:
    """What the callbacks did there and here."""
    return results_of(CASES, imports=("transformers.trainer",))


def test_each_case_is_compared(results) -> None:
    """No case of the script is left out below."""
    assert list(results) == NAMES


@pytest.mark.parametrize(
    ("framework", "home", "base"),
    [
        ("accelerated", "pytorch_accelerated/callbacks.py", "TrainerCallback"),
        ("transformers", "transformers/trainer_callback.py", "TrainerCallback"),
    ],
)
def test_all_built_in_callbacks_are_tried(framework: str, home: str, base: str) -> None:
    """There is a case for each callback that the framework's own module defines."""
    package = importlib.util.find_spec(home.partition("/")[0])
    assert package is not None
    assert package.origin is not None
    tree = ast.parse(Path(package.origin).parents[1].joinpath(home).read_text(encoding="utf-8"))
    kinds = {base}
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and kinds & {ast.unparse(one) for one in node.bases}:
            kinds.add(node.name)
    tried = {name.partition(" ")[2].partition("-")[0] for name in NAMES if framework in name}
    assert kinds - tried <= {base, "CallbackHandler"}


@pytest.mark.parametrize("name", NAMES)
def test_a_resume_goes_on_where_it_was(results, name: str) -> None:
    """A run that is broken off inside an epoch and resumed does, in both parts, the same."""
    assert results[name]["cut"] == results[name]["there"]


@pytest.mark.parametrize("name", NAMES)
def test_it_does_what_it_does_at_home(results, name: str) -> None:
    """Events in order with their counters, what is kept, files and weights are the same."""
    here, there = results[name]["here"], results[name]["there"]
    assert "raised" not in there
    assert here == there
