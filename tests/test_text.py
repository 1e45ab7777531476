"""Tables and trees: plain text for a file, drawn on a terminal."""

from __future__ import annotations

import io

import pyte
import pytest

from trainer_hooks._text import (
    Branch,
    aligned,
    count_with_noun,
    printable,
    printable_lines,
    show_table,
    show_tree,
)

ROWS = [["on_fit_start", "3", "[red]"], ["x", "1000", ""]]
TREE = Branch("fit", (Branch("setup", (Branch("Counter"),)), Branch("[idle]", is_faint=True)))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def screen(self) -> list[str]:
        screen = pyte.Screen(80, 24)
        pyte.Stream(screen).feed(self.getvalue().replace("\n", "\r\n"))
        return [line.rstrip() for line in screen.display]


def test_columns_are_as_wide_as_they_must_be() -> None:
    """Cells stand below each other, numbers flush right, and nothing trails."""
    assert aligned(ROWS, right={1}) == ["on_fit_start     3  [red]", "x             1000"]


def test_a_table_in_a_file_is_plain() -> None:
    """Title, header, a rule, the rows; brackets are no markup."""
    file = io.StringIO()
    show_table(["hook", "calls", "by"], ROWS, title="Costs", right={1}, file=file)
    assert file.getvalue().splitlines() == [
        "Costs",
        "hook          calls  by",
        "-" * 26,
        "on_fit_start      3  [red]",
        "x              1000",
    ]


def test_a_table_without_rows_has_its_header(capsys) -> None:
    """Standard output is where it goes unless told otherwise."""
    show_table(["hook", "calls"], [])
    assert capsys.readouterr().out == "hook  calls\n-----------\n"


def test_a_table_on_a_terminal_is_drawn(monkeypatch) -> None:
    """The same cells, drawn by rich, brackets included."""
    monkeypatch.setenv("TERM", "xterm-256color")
    terminal = Terminal()
    show_table(["hook", "calls", "by"], ROWS, title="Costs", right={1}, file=terminal)
    shown = "\n".join(terminal.screen())
    for text in ("Costs", "on_fit_start", "1000", "[red]", "\u2500"):
        assert text in shown


@pytest.mark.parametrize("text", ["[red]x[/red]", "[/]", ":cat:", "a:warning:b", "back\\\\"])
def test_what_rich_has_a_meaning_for_is_shown_as_it_is(text, monkeypatch) -> None:
    """Neither markup nor the name of an emoji is anything but text, in tables and in trees."""
    monkeypatch.setenv("TERM", "xterm-256color")
    terminal = Terminal()
    show_table([text], [[text]], title=text, file=terminal)
    show_tree(Branch(text, (Branch(text),)), file=terminal)
    assert sum(text in line for line in terminal.screen()) == 5


def test_a_tree_in_a_file_is_indented() -> None:
    """Two spaces a level."""
    file = io.StringIO()
    show_tree(TREE, file=file)
    assert file.getvalue() == "fit\n  setup\n    Counter\n  [idle]\n"


def test_a_tree_on_a_terminal_is_drawn(monkeypatch) -> None:
    """The same lines with guides; brackets are no markup."""
    monkeypatch.setenv("TERM", "xterm-256color")
    terminal = Terminal()
    show_tree(TREE, file=terminal)
    shown = [line for line in terminal.screen() if line]
    assert shown == [
        "fit",
        "\u251c\u2500\u2500 setup",
        "\u2502   \u2514\u2500\u2500 Counter",
        "\u2514\u2500\u2500 [idle]",
    ]


HOSTILE = "\x1b[2Ja\x07\x7f\x9b31m\u202e\ud800\n\x85b"
SHOWN = r"\x1b[2Ja\x07\x7f\x9b31m\u202e\ud800\n\x85b"


@pytest.mark.parametrize("stream_type", [io.StringIO, Terminal])
def test_control_characters_are_escaped(stream_type, monkeypatch) -> None:
    """In every text of a table and of a tree, on a terminal and in a file."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "200")
    file = stream_type()
    show_table([HOSTILE], [[HOSTILE]], title=HOSTILE, file=file)
    show_tree(Branch(HOSTILE, (Branch(HOSTILE),)), file=file)
    assert file.getvalue().count(SHOWN) == 5
    assert "\x07" not in file.getvalue()


def test_what_is_printable_stays() -> None:
    """Letters of any script stay, a second call changes nothing, and lines can be kept."""
    assert printable("Größe 大 🙂") == "Größe 大 🙂"
    assert printable(printable(HOSTILE)) == printable(HOSTILE) == SHOWN
    assert printable_lines("a\n\tb\x1b") == "a\n\tb\\x1b"


@pytest.mark.parametrize(
    ("number", "noun", "shown"),
    [
        (0, "batch", "0 batches"),
        (1, "batch", "1 batch"),
        (2, "epoch", "2 epochs"),
        (1234, "tensor", "1,234 tensors"),
    ],
)
def test_a_number_with_its_noun(number: int, noun: str, shown: str) -> None:
    """One thing is singular, and several have the plural of their noun."""
    assert count_with_noun(number, noun) == shown
