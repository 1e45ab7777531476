"""Headings, text and tables: drawn with rich on a terminal, plain text elsewhere."""

from __future__ import annotations

import sys
import textwrap
from typing import TYPE_CHECKING, Any

from trainer_hooks._text import aligned

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Screen"]

_WIDTH = 88


class Screen:
    """Write to standard output and flush after each part.

    Without the flush, lines of child processes would appear before earlier lines of this one.

    Args:
        is_terminal: whether the output is a terminal; detected unless given.
    """

    def __init__(self, is_terminal: bool | None = None) -> None:
        wants = sys.stdout.isatty() if is_terminal is None else is_terminal
        self._console: Any = None
        if wants:
            from rich.console import Console

            self._console = Console(highlight=False, soft_wrap=False)

    @property
    def width(self) -> int:
        """The width of a text line, in characters."""
        return _WIDTH if self._console is None else min(_WIDTH, self._console.width)

    def heading(self, title: str) -> None:
        """Write a section heading."""
        if self._console is None:
            print(f"\n{title}\n{'-' * len(title)}", flush=True)
        else:
            self._console.print()
            self._console.rule(f"[bold cyan]{title}", align="left", style="cyan")

    def text(self, text: str, indent: int = 0) -> None:
        """Write a wrapped paragraph."""
        space = " " * indent
        wrapped = textwrap.wrap(
            text,
            self.width,
            initial_indent=space,
            subsequent_indent=space,
            break_on_hyphens=False,
            break_long_words=False,
        )
        self.lines(wrapped)

    def lines(self, lines: Sequence[str], style: str = "") -> None:
        """Write lines without wrapping them."""
        for line in lines:
            if self._console is None:
                print(line, flush=True)
            else:
                # not wrapped: a path or a line of code must stay one to be copied
                self._console.print(line, style=style, markup=False, soft_wrap=True)

    def verdict(self, text: str, *, is_good: bool) -> None:
        """Write a result, green or red on a terminal."""
        self.lines([text], style="bold green" if is_good else "bold red")

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Write a table with a header row."""
        if self._console is None:
            rule = ["-" * max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]
            self.lines(aligned([columns, rule, *rows]))
            return
        from rich.box import SIMPLE_HEAD
        from rich.table import Table
        from rich.text import Text

        table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
        for column in columns:
            table.add_column(column, overflow="fold")
        for row in rows:
            table.add_row(*map(Text, row))
        self._console.print(table)
