"""What the modules of the commands share.

Each command is a module with two functions: `add_parser(commands)` declares its arguments and sets
`run` as their default, and `run(arguments)` does it and returns the exit code. torch is imported
inside of `run`, by those that need it, so that the others answer at once.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "INTERRUPTED",
    "PIPE_CLOSED",
    "USAGE_ERROR",
    "Commands",
    "add_target",
    "failed",
    "is_free",
    "number_under",
    "to_install",
]

USAGE_ERROR = 2
"""Exit code: the arguments make no sense."""

INTERRUPTED = 130
"""Exit code: Ctrl-C."""

PIPE_CLOSED = 141
"""Exit code: who read the output has left, as `head` does."""


class Commands(Protocol):
    """To what a command adds its parser: what `ArgumentParser.add_subparsers` returns."""

    def add_parser(self, name: str, **kwargs: Any) -> argparse.ArgumentParser:
        """Return the parser of a new command."""


def failed(command: str, reason: str) -> int:
    """Tell in one line why a command cannot be done, and return the exit code."""
    print(f"trainer-hooks {command}: error: {' '.join(reason.split())}", file=sys.stderr)
    return USAGE_ERROR


def to_install(error: ModuleNotFoundError, extra: str, *packages: str) -> str:
    """Return what to install where an optional package is missing; raise what is another fault."""
    package = (error.name or "").partition(".")[0]
    if package not in packages:
        raise error
    return f"{package} is not installed: pip install 'trainer-hooks[{extra}]'"


def add_target(parser: argparse.ArgumentParser, name: str, text: str) -> None:
    """Declare the name of what a command writes, and the folder where to.

    Args:
        parser: the command's.
        name: what the name is called in the help.
        text: what it is.
    """
    parser.add_argument("name", metavar=name, help=text)
    parser.add_argument(
        "--dir",
        type=Path,
        metavar="DIR",
        help=f"a new or empty folder to write it to (default: {name} in the working directory)",
    )


def number_under(limit: float, rule: str) -> Callable[[str], float]:
    """Return what reads an argument that is a number from 0 to under `limit`.

    Args:
        limit: the first number that is too large.
        rule: what the argument must be, in words.
    """

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0.0 <= value < limit:
            raise argparse.ArgumentTypeError(f"{text!r} must be {rule}")
        return value

    return read


def is_free(folder: Path) -> bool:
    """Return whether a folder is empty, or is not there yet."""
    return not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))
