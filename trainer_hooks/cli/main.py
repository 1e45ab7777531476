"""The entry point of the command `trainer-hooks`."""

from __future__ import annotations

import errno
import os
import sys
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer_hooks._output import escaping_output, flush_output, redirect_to_null
from trainer_hooks._version import __version__, old_torch
from trainer_hooks.cli.checkpoint import command as checkpoint
from trainer_hooks.cli.commands import (
    INTERRUPTED,
    PIPE_CLOSED,
    USAGE_ERROR,
    Parser,
)
from trainer_hooks.cli.demo import command as demo_command
from trainer_hooks.cli.doctor import command as doctor
from trainer_hooks.cli.hooks import command as hooks
from trainer_hooks.cli.new import command as new
from trainer_hooks.cli.plugins import command as plugins
from trainer_hooks.cli.port import command as port
from trainer_hooks.cli.report import command as report
from trainer_hooks.cli.run.arguments import SUBCOMMANDS, is_completing, words_to_complete
from trainer_hooks.cli.run.command import run_command
from trainer_hooks.cli.sweep import command as sweep

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

_TRAINING_HELP = {
    "fit": "train what a config file or options say",
    "validate": "run the validation of the same",
    "test": "run the test of the same",
    "predict": "run the prediction of the same",
}


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
    _open_missing_output()
    words = sys.argv[1:] if argv is None else list(argv)
    if argv is None and is_completing():
        words = _complete()
    if words and not words[0].startswith("-") and words[0] != "doctor" and (line := old_torch()):
        print(f"trainer-hooks {words[0]}: {line}", file=sys.stderr)
        return 1
    try:
        # before argparse, which knows none of the options of a training
        is_training = bool(SUBCOMMANDS.keys() & words[:1])
        with escaping_output(), _warnings_without_our_line():
            code = run_command(words)[0] if is_training else _run_other_command(words)
        # a training has done its work even if its text cannot be written
        if is_training:
            flush_output()
        # here, where a closed pipe is still caught: Python itself would complain as it exits
        sys.stdout.flush()
    # Python flushes once more as it exits, and would fail again but for `redirect_to_null`
    except BrokenPipeError:
        redirect_to_null(sys.stdout)
        return PIPE_CLOSED
    except OSError as error:
        # an error with a file's name is none of the output
        if error.errno != errno.ENOSPC or error.filename is not None:
            raise
        redirect_to_null(sys.stdout)
        print(f"trainer-hooks: the output is not whole: {error.strerror}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        # the terminal has written ^C on this line
        print("\ninterrupted", file=sys.stderr)
        return INTERRUPTED
    return code


def _open_missing_output() -> None:
    """Open the null device for a standard stream that the process was started without (`>&-`)."""
    # also so that no file of the run gets the stream's number, which C code prints to
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            null = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - it stays open
            setattr(sys, name, null)


@contextmanager
def _warnings_without_our_line() -> Iterator[None]:
    """Show a warning without file and line where these are the ones that called `main`.

    A warning of this package points at the first caller outside of it. For a run of the command
    line that is the script that pip installed, unless the user's module called.
    """
    whole = warnings.formatwarning
    script = str(getattr(sys.modules["__main__"], "__file__", ""))

    def brief(
        message: Warning | str, category: type[Warning], filename: str, *position: Any
    ) -> str:
        # `python -m trainer_hooks` is called by runpy
        if filename == script or filename.startswith("<frozen"):
            return f"{category.__name__}: {message}\n"
        return whole(message, category, filename, *position)

    warnings.formatwarning = brief  # type: ignore[assignment]
    try:
        yield
    finally:
        warnings.formatwarning = whole


def _complete() -> list[str]:
    """Complete a line for the shell and exit; return the arguments of a training command."""
    import argcomplete

    words = words_to_complete()
    if not SUBCOMMANDS.keys() & words[:1]:
        # it ends the process; the arguments of a training are completed by their own parser
        argcomplete.autocomplete(_parser())
    return words


def _run_other_command(words: Sequence[str]) -> int:
    parser = _parser()
    arguments = parser.parse_args(words)
    if arguments.command is None:
        # subcommands are optional to argparse, and so a line without one comes here
        parser.print_help(sys.stderr)
        return USAGE_ERROR
    code: int = arguments.run(arguments)
    return code


def _parser() -> argparse.ArgumentParser:
    # argparse: click and typer would be one more package for everybody who trains
    parser = Parser(
        prog="trainer-hooks",
        description="A PyTorch trainer whose one idea is the hook.",
        epilog="Begin with: trainer-hooks demo --fast",
    )
    parser.add_argument("--version", action="version", version=f"trainer-hooks {__version__}")
    commands = parser.add_subparsers(dest="command", title="commands", metavar="COMMAND")
    for command in (demo_command, new):
        command.add_parser(commands)
    # listed for the help alone: `main` has taken these words out before
    for name, text in _TRAINING_HELP.items():
        commands.add_parser(name, help=text, add_help=False)  # jsonargparse parses the rest
    for command in (sweep, hooks, plugins, checkpoint, report, port, doctor):
        command.add_parser(commands)
    return parser
