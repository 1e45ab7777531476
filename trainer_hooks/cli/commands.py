"""What the modules of the commands share.

Each command is a module with two functions: `add_parser(commands)` declares its arguments and sets
`run` as their default, and `run(arguments)` does it and returns the exit code. torch is imported
inside of `run`, by those that need it, so that the others answer at once.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import argparse

__all__ = ["INTERRUPTED", "PIPE_CLOSED", "USAGE_ERROR", "Commands", "failed", "to_install"]

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
