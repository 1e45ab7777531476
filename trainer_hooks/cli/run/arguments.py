"""The arguments of a training command: its subcommand, and shell completion by argcomplete."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainer_hooks.cli.run.parser import TrainerParser

__all__ = ["SUBCOMMANDS", "complete", "find_subcommand", "is_completing", "words_to_complete"]

SUBCOMMANDS: Mapping[str, tuple[str, ...]] = {
    "fit": ("model", "train_dataloaders", "val_dataloaders", "datamodule"),
    "validate": ("model", "dataloaders", "datamodule"),
    "test": ("model", "dataloaders", "datamodule"),
    "predict": ("model", "dataloaders", "datamodule"),
}
"""The commands, and the arguments of the Trainer's method that are no options of each."""


def find_subcommand(given: Any) -> str | None:
    """Return the command in command-line arguments or in a config object; None without one."""
    if isinstance(given, Mapping) or hasattr(given, "as_dict"):
        named = given.get("subcommand")
        return named or next((name for name in SUBCOMMANDS if name in given), None)
    return next((word for word in given if word in SUBCOMMANDS), None)


def is_completing() -> bool:
    """Return whether a shell started this process to complete a line."""
    return "_ARGCOMPLETE" in os.environ


def words_to_complete() -> list[str]:
    """Return the arguments on the line after the program's name."""
    start = int(os.environ.get("_ARGCOMPLETE") or 1)
    return os.environ.get("COMP_LINE", "").split()[start:]


def complete(parser: TrainerParser, subcommand: str | None) -> None:
    """Print the completions for the shell and exit.

    Args:
        parser: the command's own parser. The command's name is taken off the line first, because
            the setup of jsonargparse for argcomplete does not reach parsers of subcommands.
        subcommand: the command on the line, None without one.
    """
    line, name = os.environ.get("COMP_LINE", ""), f" {subcommand} "
    if subcommand is not None and name in line:
        point = int(os.environ.get("COMP_POINT", len(line)))
        os.environ["COMP_LINE"] = line.replace(name, " ", 1)
        os.environ["COMP_POINT"] = str(max(0, point - len(name) + 1))
    parser.complete_class_names()
    parser.parse_args([])  # it answers and exits where argcomplete is installed
