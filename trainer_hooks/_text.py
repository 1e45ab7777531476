"""Tables and trees for people to read: in colour on a terminal, plain text everywhere else."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from rich.console import Console
    from rich.tree import Tree

__all__ = ["Branch", "aligned", "printable", "show_table", "show_tree"]

# plain tables and trees are our own: rich fits all that it draws to a width, and a file has none
_INDENT = "  "


def aligned(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Return a line for each row; the columns are as wide as they must be.

    Args:
        rows: rows of equally many cells.
        right: indices of the columns that are flush right.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        _INDENT.join(
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def printable(text: object) -> str:
    """Return a text on one line, with what would steer a terminal written out."""
    shown = str(text)
    # not rich's escape_control_codes, which knows five of the hundreds that there are
    if shown.isprintable():
        return shown
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown)


def show_table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    title: str = "",
    right: Collection[int] = (),
    whole: Collection[int] = (),
    file: TextIO | None = None,
) -> None:
    """Print a table.

    Args:
        header: the columns' names.
        rows: rows of as many cells.
        title: a line above it.
        right: indices of the columns that are flush right.
        whole: indices of the columns whose cells are not broken where the terminal is narrow.
        file: where to; standard output unless given. If it is a terminal, rich draws it.
    """
    file = file or sys.stdout
    if file.isatty():
        from rich import box
        from rich.table import Table

        table = Table(title=title or None, box=box.SIMPLE_HEAD, title_justify="left")
        for index, name in enumerate(header):
            table.add_column(
                name,
                justify="right" if index in right else "left",
                overflow="fold",
                no_wrap=index in whole,
            )
        for row in rows:
            table.add_row(*row)
        _console(file).print(table)
        return
    head, *lines = aligned([header, *rows], right)
    rule = "-" * max(map(len, (head, *lines)))
    print(*([title] if title else []), head, rule, *lines, sep="\n", file=file)


@dataclass(frozen=True, slots=True)
class Branch:
    """A line of a tree, and what stands below it.

    Attributes:
        text: the line.
        branches: what stands below it, in order.
        is_faint: whether it matters less: it is dimmed on a terminal.
    """

    text: str
    branches: tuple[Branch, ...] = ()
    is_faint: bool = False


def show_tree(root: Branch, *, file: TextIO | None = None) -> None:
    """Print a tree.

    Args:
        root: its first line, and all the others below that.
        file: where to; standard output unless given. If it is a terminal, rich draws it.
    """
    file = file or sys.stdout
    if file.isatty():
        _console(file, soft_wrap=True).print(_drawn(root))
        return
    print(*_indented(root, 0), sep="\n", file=file)


def _indented(branch: Branch, depth: int) -> Iterator[str]:
    yield _INDENT * depth + branch.text
    for below in branch.branches:
        yield from _indented(below, depth + 1)


def _drawn(branch: Branch) -> Tree:
    from rich.tree import Tree

    tree = Tree(branch.text, style="dim" if branch.is_faint else "")
    for below in branch.branches:
        tree.children.append(_drawn(below))
    return tree


def _console(file: TextIO, *, soft_wrap: bool = False) -> Console:
    """Return a console that shows texts as they are: `[red]` and `:cat:` too."""
    from rich.console import Console

    return Console(file=file, soft_wrap=soft_wrap, markup=False, emoji=False)
