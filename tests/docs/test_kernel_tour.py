"""The tour of the kernel names files and functions that are there, and is as short as it says."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "kernel-tour.md").read_text(encoding="utf-8")
STOPS = re.findall(r"^\| \d+ \| `([\w/]+\.py)` \| (.*?) \| (.*?) \| .*\? \|$", PAGE, re.MULTILINE)


def code_lines(path: Path) -> int:
    """Return the number of a file's lines that are neither blank, comment nor docstring."""
    source = path.read_text(encoding="utf-8")
    nothing = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in nothing | {tokenize.ENDMARKER}:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            lines.difference_update(range(node.lineno, (node.end_lineno or 0) + 1))
    return len(lines)


def test_it_has_twelve_stops_and_fits_into_an_afternoon() -> None:
    """The number of lines that the page names is the right one, in hundreds."""
    assert len(STOPS) == 12
    total = sum(code_lines(ROOT / "trainer_hooks" / file) for file, _, _ in STOPS)
    assert total <= 3500
    assert f"about {round(total, -2):,} lines of code" in PAGE


@pytest.mark.parametrize(("file", "look", "skip"), STOPS, ids=[file for file, _, _ in STOPS])
def test_what_it_points_to_is_in_the_file(file, look, skip) -> None:
    """Each name is a class, a function or a method there."""
    tree = ast.parse((ROOT / "trainer_hooks" / file).read_text(encoding="utf-8"))
    kinds = ast.ClassDef | ast.FunctionDef
    there = {node.name for node in ast.walk(tree) if isinstance(node, kinds)}
    named = set(re.findall(r"`(\w+)`", look + skip))
    assert named
    assert named <= there
