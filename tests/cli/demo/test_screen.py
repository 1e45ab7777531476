"""What the demo writes: plain where there is no terminal, whole lines where they are copied."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks.cli.demo.demo_report import Screen

if TYPE_CHECKING:
    import pytest


def test_plain_output_has_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal headings are underlined and tables aligned, in plain characters."""
    screen = Screen()
    screen.heading("A title")
    screen.table(("name", "n"), [("batches", "41"), ("x", "1,297")])
    screen.verdict("good", is_good=True)
    assert capsys.readouterr().out == (
        "\nA title\n-------\nname     n\n-------  -----\nbatches  41\nx        1,297\ngood\n"
    )


def test_paragraphs_are_wrapped_and_lines_are_not(capsys: pytest.CaptureFixture[str]) -> None:
    """Text is wrapped between words, a path is left whole."""
    screen = Screen()
    screen.text("word " * 40)
    screen.lines(["/a/path/" + "x" * 200])
    *wrapped, path = capsys.readouterr().out.splitlines()
    assert len(wrapped) == 3
    assert max(map(len, wrapped)) <= screen.width
    assert len(path) == 208


def test_a_terminal_gets_colours_and_what_is_written_literally(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a terminal rich draws; brackets are text and no markup, and long lines are not broken."""
    for name, value in (("TERM", "xterm"), ("COLUMNS", "60"), ("FORCE_COLOR", "1")):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    screen = Screen(is_terminal=True)
    screen.heading("A title")
    screen.table(("name",), [("[bold]x",)])
    screen.lines(["[red]" + "y" * 100])
    screen.verdict("good", is_good=True)
    text = capsys.readouterr().out
    assert screen.width == 60
    assert "A title" in text
    assert "[bold]x" in text
    assert "[red]" + "y" * 100 in text
    assert "\x1b[1;32mgood" in text
