"""Tables and trees: in colour on a terminal, plain text everywhere else."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple, TextIO

from trainer_hooks._output import is_terminal

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from rich.console import Console
    from rich.tree import Tree

# plain text is laid out here and not by rich, which fits its output to a width: a file has none
_INDENT = "  "


def aligned(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Return a line for each row, with the cells padded to the width of their column.

    Args:
        rows: rows of equally many cells.
        right: indices of the columns that are right-aligned.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        _INDENT.join(
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def count_with_noun(number: int, noun: str) -> str:
    """Return a number with its noun, such as `1 tensor` or `1,234 tensors`."""
    # inflect knows all plurals; of ours only those of batch and patch take another ending
    ending = "es" if noun.endswith("tch") else "s"
    return f"{number:,} {noun}{'' if number == 1 else ending}"


def first_few(texts: Sequence[str], most: int, separator: str = ", ") -> str:
    """Return the first texts and how many more there are, such as `a, b and 3 more`."""
    shown, hidden = separator.join(texts[:most]), len(texts) - most
    # after semicolons one more, as in `a; b; and 3 more`; no comma
    return f"{shown}{separator.strip(', ')} and {hidden:,} more" if hidden > 0 else shown


def printable(text: object, keeps: str = "") -> str:
    """Return a text with control characters escaped, so that a terminal shows and obeys none.

    These are C0, C1 and DEL, the ends of lines, the marks that turn the direction of writing, and
    halves of surrogate pairs, which cannot be encoded. A second call changes nothing.

    Args:
        text: the text, or an object in place of its `str`.
        keeps: characters to leave as they are.
    """
    shown = str(text)
    # not rich's escape_control_codes, which knows five of the hundreds that exist
    if shown.isprintable():
        return shown
    return "".join(
        c if c.isprintable() or c in keeps else c.encode("unicode_escape").decode() for c in shown
    )


def printable_lines(text: object) -> str:
    """Return a text as `printable` does, in its lines and with its tabs."""
    return printable(text, "\n\t")


def show_table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    title: str = "",
    right: Collection[int] = (),
    whole: Collection[int] = (),
    file: TextIO | None = None,
) -> None:
    """Print a table, with the control characters in its texts escaped.

    Args:
        header: the columns' names.
        rows: rows of as many cells.
        title: a line above the table.
        right: indices of the columns that are right-aligned.
        whole: indices of the columns whose cells are not wrapped on a narrow terminal.
        file: the stream to write to; standard output if None. On a terminal, rich draws the table.
    """
    file = file or sys.stdout
    title, header = printable(title), [printable(name) for name in header]
    rows = [[printable(cell) for cell in row] for row in rows]
    if is_terminal(file):
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


class Branch(NamedTuple):
    """A line of a tree, with the branches below it.

    Attributes:
        text: the line.
        branches: the branches below it, in order.
        is_faint: whether it is dimmed on a terminal, as less important.
    """

    text: str
    branches: tuple[Branch, ...] = ()
    is_faint: bool = False


def show_tree(root: Branch, *, file: TextIO | None = None) -> None:
    """Print a tree, with the control characters in its texts escaped.

    Args:
        root: the first line, with all others below it.
        file: the stream to write to; standard output if None. On a terminal, rich draws the tree.
    """
    file = file or sys.stdout
    if is_terminal(file):
        _console(file, soft_wrap=True).print(_drawn(root))
        return
    print(*_indented(root, 0), sep="\n", file=file)


def _indented(branch: Branch, depth: int) -> Iterator[str]:
    yield _INDENT * depth + printable(branch.text)
    for below in branch.branches:
        yield from _indented(below, depth + 1)


def _drawn(branch: Branch) -> Tree:
    from rich.tree import Tree

    tree = Tree(printable(branch.text), style="dim" if branch.is_faint else "")
    for below in branch.branches:
        tree.children.append(_drawn(below))
    return tree


def _console(file: TextIO, *, soft_wrap: bool = False) -> Console:
    """Return a console that prints texts literally, without markup such as `[red]` or `:cat:`."""
    from rich.console import Console

    return Console(file=file, soft_wrap=soft_wrap, markup=False, emoji=False)
