"""The output of the demo: drawn with rich on a terminal, plain text elsewhere."""

from __future__ import annotations

import sys
import textwrap
from typing import TYPE_CHECKING, Any

from torch import Tensor

from trainer_hooks._text import aligned
from trainer_hooks.cli.demo import digits

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainer_hooks.cli.demo.comparison import StateRow, TensorComparison
    from trainer_hooks.trainer.trainer import Trainer

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
            # here: in a pipe or a log rich is never needed
            from rich.console import Console

            # rich would colour numbers and paths, as if they meant something
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
            # as Text: in a string brackets would be markup
            table.add_row(*map(Text, row))
        self._console.print(table)


EXAMPLE = "trainer-hooks-monitoring"
PRINTS = "TRAINER_HOOKS_EVENT_LOG_PRINT"
LEAST_ACCURACY = 0.97
NEXT_LINES = (
    "from trainer_hooks import Trainer",
    "trainer = Trainer(max_epochs=10)",
    "trainer.fit(MyModule(), datamodule=MyData())",
)


def show_callbacks(screen: Screen, trainer: Trainer) -> None:
    """List the callbacks of a trainer and their distributions."""
    screen.heading("1. The callbacks in play, and who supplied them")
    names = {"default": "the Trainer itself, by default"}
    rows = [(type(c).__name__, names.get(who, who)) for c, who in trainer.callback_origins]
    screen.table(("callback", "supplied by"), rows)
    screen.lines([""])
    for plugin in trainer.plugins:
        taking_part = [c for c in plugin.callbacks if c in trainer.callbacks]
        if plugin.status == "loaded" and taking_part:
            named = " and ".join(type(c).__name__ for c in taking_part)
            screen.text(
                f"Nobody imported {plugin.value.partition('.')[0]}: {named} takes part because "
                f"{plugin.distribution} {plugin.version} is installed and names "
                f"{plugin.value} as an entry point."
            )
    example = next((p for p in trainer.plugins if p.distribution == EXAMPLE), None)
    if example is None:
        screen.text(
            f"No callback of {EXAMPLE} takes part: it is not installed, or plugins are switched "
            "off. To see a plugin at work, run this in a checkout of the repository, and then the "
            "demo again: pip install ./plugins_example/monitoring"
        )
    elif example.status == "loaded":
        screen.text(
            f"{PRINTS}=1 lets the EventLog print here; its lines begin with [event-log]. In your "
            "own runs it counts and says nothing, unless you set that."
        )
    else:
        screen.text(f"{EXAMPLE} is installed, but does not take part: {example.reason}.")


def show_comparison(
    screen: Screen, comparisons: Mapping[str, TensorComparison], rows: list[StateRow], contrast: int
) -> bool:
    """Show whether the resumed run is the same run, and return it.

    Args:
        screen: where.
        comparisons: how the ends compare.
        rows: the callbacks' states.
        contrast: how many of the weights' tensors differed when the run was interrupted.
    """
    screen.heading("5. Is it the same run?")
    screen.text("What the callbacks had counted went on where it was:")
    screen.lines([""])
    screen.table(
        ("callback state", "at Ctrl-C", "restored", "at end", "uncut run", "verdict"),
        [
            (row.name, *map(_shown, (row.cut, row.restored, row.end, row.uncut)), row.verdict)
            for row in rows
        ],
    )
    screen.lines([""])
    screen.text("At the end of the resumed run, and of the one that was never interrupted:")
    screen.lines([""])
    width = show_ends(screen, comparisons)
    tensors = comparisons["weights"].tensors
    screen.lines(
        [f"  {''.ljust(width)}  (at the interruption {contrast} of {tensors} still differed)", ""]
    )
    is_same = all(c.is_equal for c in comparisons.values()) and all(r.is_right for r in rows)
    screen.verdict(
        "The resumed run is the run that was never interrupted, to the last bit."
        if is_same
        else "The resumed run is NOT the run that was never interrupted. Please report this.",
        is_good=is_same,
    )
    return is_same


def show_result(screen: Screen, accuracy: float, best: str, number: int = 6) -> bool:
    """Print the test accuracy, the best checkpoint and the next steps, in section `number`.

    Returns:
        Whether the net reached the accuracy that it must reach.
    """
    screen.heading(f"{number}. The result")
    is_accurate = accuracy > LEAST_ACCURACY
    bound = "over" if is_accurate else "NOT over"
    screen.verdict(
        f"test accuracy    {accuracy:.2%}, {bound} {LEAST_ACCURACY:.0%} "
        f"({digits.SIZES['test']} images, the best checkpoint's weights)",
        is_good=is_accurate,
    )
    screen.lines([f"best checkpoint  {best}", ""])
    screen.lines(["Your own training, in three lines:", "", *(f"    {n}" for n in NEXT_LINES), ""])
    screen.text(
        "Installed plugins take part by themselves; callbacks=[...] adds your own. With "
        "ckpt_path=... fit goes on where a run was cut. A Module and a DataModule to start from:"
    )
    screen.lines([f"    {digits.__file__}"])
    return is_accurate


def show_ends(screen: Screen, comparisons: Mapping[str, TensorComparison]) -> int:
    """Print each comparison on a line and return the width of the name column."""
    width = max(map(len, comparisons))
    for name, comparison in comparisons.items():
        line = f"  {name.ljust(width)}  {comparison}"
        screen.verdict(line, is_good=comparison.is_equal)
    return width


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    number = value.item() if isinstance(value, Tensor) else value
    return f"{number:,}" if isinstance(number, int) else f"{number:.7f}"
