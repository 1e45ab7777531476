"""The command `trainer-hooks`: what it can do, and with which options."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from trainer_hooks._version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

_USAGE_ERROR = 2
_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        argv: the arguments without the program's name; those of this process unless given.

    Returns:
        0 if all went well, 1 if the command failed, 2 without a command, 130 after Ctrl-C.

    Raises:
        SystemExit: the arguments cannot be understood (code 2), or were answered at once (code 0).
    """
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.command is None:
        parser.print_help(sys.stderr)
        return _USAGE_ERROR
    # here, because it imports torch: --version and --help answer at once
    from trainer_hooks.cli.demo import run_demo

    try:
        return run_demo(arguments.dir, is_fast=arguments.fast)
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return _INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="trainer-hooks",
        description="A PyTorch trainer whose one idea is the hook.",
        epilog="Begin with: trainer-hooks demo --fast",
    )
    parser.add_argument("--version", action="version", version=f"trainer-hooks {__version__}")
    commands = parser.add_subparsers(dest="command", title="commands", metavar="COMMAND")
    demo = commands.add_parser(
        "demo",
        help="train a small net on real digits, interrupt it, resume it, compare",
        description=(
            "Train a small convolutional net on handwritten digits, interrupt it in the middle of "
            "an epoch, resume it in a new process, and compare with a run that was never "
            "interrupted: the weights bit for bit, and what the callbacks had counted."
        ),
        epilog="The exit code is 0 only if all of it holds and the test accuracy is over 97%.",
    )
    demo.add_argument("--fast", action="store_true", help="fewer epochs: under 20 s on two cores")
    demo.add_argument(
        "--dir",
        type=Path,
        metavar="DIR",
        help="a new or empty folder for logs and checkpoints (default: demo_runs/<date-time>)",
    )
    return parser
