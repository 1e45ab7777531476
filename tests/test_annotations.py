"""Annotations of users: from Python 3.14 on they are evaluated only as they are read."""

from __future__ import annotations

import ast
import enum
import importlib.util
import inspect
import sys
from pathlib import Path
from types import ModuleType
from typing import ForwardRef

import pytest

from trainer_hooks import _annotations
from trainer_hooks.checkpoint import hparams

PACKAGE = Path(_annotations.__file__).parent

READS = {"signature", "get_annotations", "getfullargspec"}

OF_THE_PACKAGE = {("_annotations.py", "signature"), ("cli/hooks/listing.py", "signature"),
                  ("_annotations.py", "get_annotations"),
                  ("_annotations.py", "__annotations__")}  # fmt: skip
"""Where annotations of the package's own functions are read, which has them as texts."""


def reads_of(tree: ast.Module) -> set[str]:
    """Return the functions of `inspect` that a file reads annotations by, and the attribute."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "inspect":
            found |= {node.attr} & READS
        elif isinstance(node, ast.ImportFrom) and node.module == "inspect":
            found |= {alias.name for alias in node.names} & READS
        elif isinstance(node, ast.Attribute) and node.attr == "__annotations__":
            found |= {node.attr} if isinstance(node.ctx, ast.Load) else set()
        elif isinstance(node, ast.Subscript | ast.Call):
            texts = [getattr(part, "value", None) for part in getattr(node, "args", [])]
            texts.append(getattr(getattr(node, "slice", None), "value", None))
            is_read = isinstance(getattr(node, "ctx", ast.Load()), ast.Load)
            found |= {"__annotations__"} if is_read and "__annotations__" in texts else set()
    return found


def test_the_package_reads_annotations_in_one_file() -> None:
    """A name that is imported for type checkers alone raises a NameError elsewhere."""
    found = {
        (str(path.relative_to(PACKAGE)), name)
        for path in PACKAGE.rglob("*.py")
        for name in reads_of(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert found == OF_THE_PACKAGE


@pytest.mark.parametrize(
    "source",
    [
        "inspect.signature(f)",
        "from inspect import signature",
        "f.__annotations__",
        "vars(f).get('__annotations__', {})",
        "vars(f)['__annotations__']",
    ],
)
def test_each_way_to_read_them_is_found(source) -> None:
    """A function, its import, and the attribute in each form."""
    assert reads_of(ast.parse(source))
    assert not reads_of(ast.parse("f.__annotations__ = {}; d['__annotations__'] = {}"))


def test_python_3_14_is_asked_not_to_evaluate_them(monkeypatch) -> None:
    """It has a module for it, and an argument of `inspect.signature`."""
    library = ModuleType("annotationlib")
    library.Format = enum.Enum("Format", "VALUE FORWARDREF")
    library.get_annotations = lambda annotated, **options: (annotated, options["format"])
    monkeypatch.setitem(sys.modules, "annotationlib", library)
    monkeypatch.setattr(sys, "version_info", (3, 14, 0, "final", 0))
    spec = importlib.util.spec_from_file_location("of_3_14", _annotations.__file__)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.own_annotations(int) == (int, library.Format.FORWARDREF)
    assert module.signature_of.func is inspect.signature
    assert module.signature_of.keywords == {"annotation_format": library.Format.FORWARDREF}


def test_a_name_that_cannot_be_resolved_is_left_out(monkeypatch) -> None:
    """As a text, and as what Python 3.14 has in its place."""

    def init(self, width: int, path: Nowhere) -> None:  # noqa: F821
        """An `__init__` with a name that only a type checker knows."""

    unresolved = {"width": int, "path": ForwardRef("Nowhere"), "return": None}
    assert hparams._hints(init) == {}
    monkeypatch.setattr(hparams, "own_annotations", lambda annotated: unresolved)
    assert hparams._hints(init) == {"width": int, "return": None}
