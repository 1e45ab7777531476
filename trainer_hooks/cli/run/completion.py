"""Completion of a line in a shell, by argcomplete."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainer_hooks.cli.run.parser import TrainerParser

__all__ = ["complete", "is_completing", "words_to_complete"]


def is_completing() -> bool:
    """Return whether this process was started by a shell that completes a line."""
    return "_ARGCOMPLETE" in os.environ


def words_to_complete() -> list[str]:
    """Return the words of the line after the program's name."""
    start = int(os.environ.get("_ARGCOMPLETE") or 1)
    return os.environ.get("COMP_LINE", "").split()[start:]


def complete(parser: TrainerParser, subcommand: str | None) -> None:
    """Answer the shell, and exit.

    Args:
        parser: that of the command; it is asked without the command's name, as what jsonargparse
            does for argcomplete does not reach the parsers of commands.
        subcommand: the command on the line, None if there is none.
    """
    line, name = os.environ.get("COMP_LINE", ""), f" {subcommand} "
    if subcommand is not None and name in line:
        point = int(os.environ.get("COMP_POINT", len(line)))
        os.environ["COMP_LINE"] = line.replace(name, " ", 1)
        os.environ["COMP_POINT"] = str(max(0, point - len(name) + 1))
    parser.complete_class_names()
    parser.parse_args([])  # it answers and exits where argcomplete is installed
