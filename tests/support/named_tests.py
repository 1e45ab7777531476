"""Find the test that a row of a table names."""

from __future__ import annotations

import ast
import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["definitions"]


@functools.cache
def definitions(file: Path) -> frozenset[str]:
    """Return the names of the functions and classes that a Python file defines, at any depth."""
    tree = ast.parse(file.read_text(encoding="utf-8"), str(file))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, kinds))
