"""The parts that all commands share.

Each command is a module with two functions: `add_parser(commands)` declares its arguments and sets
`run` as their default; `run(arguments)` carries it out and returns the exit code. The training
commands are the exception: `main` hands their arguments to `TrainerCLI`. A command that
needs torch imports it inside `run`, so that the others answer at once.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from trainer_hooks._text import printable, printable_lines
from trainer_hooks.errors import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable

USAGE_ERROR = 2
"""Exit code: the arguments make no sense."""

INTERRUPTED = 130
"""Exit code: Ctrl-C."""

PIPE_CLOSED = 141
"""Exit code: who read the output has left, as `head` does."""


class Commands(Protocol):
    """The object to which a command adds its parser; made by `ArgumentParser.add_subparsers`."""

    def add_parser(self, name: str, **kwargs: Any) -> argparse.ArgumentParser:
        """Return the parser of a new command."""


def print_failure(command: str, reason: str) -> int:
    """Print in one line why a command failed, and return the exit code."""
    # on one line, since errors of the system and of plugins may have several
    print(f"trainer-hooks {command}: error: {one_line(reason)}", file=sys.stderr)
    return USAGE_ERROR


def one_line(text: str) -> str:
    """Return a text on one line, with single spaces and with control characters escaped."""
    return printable(" ".join(text.split()))


def print_json(value: object) -> None:
    """Print a value of plain JSON types, in ASCII.

    Raises:
        ValueError: a number is NaN or infinite, which JSON has no word for.
    """
    # json escapes all control characters but this one, which only strings can hold
    print(json.dumps(value, indent=2, allow_nan=False).replace("\x7f", r"\u007f"))


_INVALID_CHOICE = re.compile(r"invalid choice: '(.*)' \(choose from (.+)\)$", re.DOTALL)


class Parser(argparse.ArgumentParser):
    """A parser that prints its errors with control characters escaped."""

    def error(self, message: str) -> NoReturn:
        """Print the usage and the error, and exit with code 2."""
        # argparse lists the choices, of which one may differ by a letter
        if match := _INVALID_CHOICE.search(message):
            message += did_you_mean(match[1], match[2].replace("'", "").split(", "))
        # an argument of the config, whose values a sweep takes by --set alone
        if match := re.search(r"unrecognized arguments: --(\w+\.[\w.]+)(=(\S+))?", message):
            message += f". Give it by --set {match[1]}={match[3] or 'VALUE'}"
        # a shell makes arguments of file names, whoever chose those
        super().error(printable_lines(message))


def nearest_file(path: Path) -> str:
    """Return the question whether a file beside a missing one was meant, or an empty text."""
    try:
        names = [] if path.exists() else [file.name for file in path.parent.iterdir()]
    except OSError:
        return ""
    return did_you_mean(path.name, names)


def install_hint(error: ModuleNotFoundError, extra: str, *packages: str) -> str:
    """Return the line that installs a missing optional package.

    An import that failed for another reason is raised again.
    """
    # an import that somebody refuses by hand has no name
    package = (error.name or "").partition(".")[0]
    if package not in packages:
        raise error
    return f"{package} is not installed: pip install 'trainer-hooks[{extra}]'"


def add_target(parser: argparse.ArgumentParser, name: str, text: str) -> None:
    """Declare the name of the project or package that a command creates, and its folder.

    Args:
        parser: the command's parser.
        name: the metavariable of the name in the help.
        text: the description of the name in the help.
    """
    parser.add_argument("name", metavar=name, help=text)
    parser.add_argument(
        "--dir",
        type=Path,
        metavar="DIR",
        help=f"a new or empty folder to write it to (default: {name} in the working directory)",
    )


def at_least_one(text: str) -> int:
    """Return a whole number from 1 on, as an argument type."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number of at least 1")
    return int(text)


def number_below(limit: float, rule: str) -> Callable[[str], float]:
    """Return an argument type for a number from 0 to below `limit`.

    Args:
        limit: the first number that is too large.
        rule: the rule for the argument, in words, for the error message.
    """

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            # refused below, with the rule: of a ValueError argparse tells nothing but the word
            value = -1.0
        # turned round, NaN would pass: each comparison with it is false
        if not 0.0 <= value < limit:
            raise argparse.ArgumentTypeError(f"{text!r} must be {rule}")
        return value

    return read


def is_free(folder: Path) -> bool:
    """Return whether a folder is empty or does not exist."""
    # is_dir first: iterdir of a file raises
    return not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))
