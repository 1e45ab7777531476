"""The entry point of the command `trainer-hooks`."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from trainer_hooks._version import __version__
from trainer_hooks.cli import hooks
from trainer_hooks.cli.checkpoint import command as checkpoint
from trainer_hooks.cli.commands import INTERRUPTED, PIPE_CLOSED, USAGE_ERROR
from trainer_hooks.cli.demo import command as demo_command
from trainer_hooks.cli.new import command as new
from trainer_hooks.cli.plugins import command as plugins
from trainer_hooks.cli.port import command as port
from trainer_hooks.cli.report import command as report
from trainer_hooks.cli.report import plot
from trainer_hooks.cli.run import command as run_command
from trainer_hooks.cli.run.arguments import is_completing, words_to_complete

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

_COMMANDS = (demo_command, new, run_command, hooks, plugins, checkpoint, report, plot, port)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        argv: the arguments without the program's name; those of this process unless given.

    Returns:
        0 if all went well, 1 if the command failed, 2 without a command or with one that cannot be
        understood, 130 after Ctrl-C, 141 if who read the output has left.

    Raises:
        SystemExit: the arguments cannot be understood (code 2), or were answered at once (code 0).
    """
    words = sys.argv[1:] if argv is None else list(argv)
    if argv is None and is_completing():
        words = _complete()
    try:
        code = (
            run_command.run_training(words)
            if run_command.is_training(words)
            else _run_other_command(words)
        )
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes once more as it exits, and would fail again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return INTERRUPTED
    return code


def _complete() -> list[str]:
    """Complete a line for the shell and exit; return the arguments of a training command."""
    import argcomplete

    words = words_to_complete()
    if not run_command.is_training(words):
        argcomplete.autocomplete(_parser())
    return words


def _run_other_command(words: Sequence[str]) -> int:
    parser = _parser()
    arguments = parser.parse_args(words)
    if arguments.command is None:
        parser.print_help(sys.stderr)
        return USAGE_ERROR
    code: int = arguments.run(arguments)
    return code


def _parser() -> argparse.ArgumentParser:
    # argparse: click and typer would be one more package for everybody who trains
    parser = argparse.ArgumentParser(
        prog="trainer-hooks",
        description="A PyTorch trainer whose one idea is the hook.",
        epilog="Begin with: trainer-hooks demo --fast",
    )
    parser.add_argument("--version", action="version", version=f"trainer-hooks {__version__}")
    commands = parser.add_subparsers(dest="command", title="commands", metavar="COMMAND")
    for command in _COMMANDS:
        command.add_parser(commands)
    return parser
