"""The parser of `trainer-hooks demo`; apart from the demo, which imports torch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from trainer_hooks.cli.commands import Commands


def add_parser(commands: Commands) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "demo",
        help="train a small net on real digits, interrupt it, resume it, compare",
        description=(
            "Train a small convolutional net on handwritten digits, interrupt it in the middle of "
            "an epoch, resume it in a new process, and compare with a run that was never "
            "interrupted: the weights bit for bit, and what the callbacks had counted."
        ),
        epilog="The exit code is 0 only if all of it holds and the test accuracy is over 97%.",
    )
    parser.add_argument("--fast", action="store_true", help="fewer epochs: under 20 s on two cores")
    parser.add_argument(
        "--processes",
        type=int,
        choices=(1, 2, 4),
        default=1,
        metavar="N",
        help="train in 2 or 4 processes instead, kill one of them, and go on",
    )
    parser.add_argument(
        "--dir",
        type=Path,
        metavar="DIR",
        help="a new or empty folder for logs and checkpoints (default: demo_runs/<date-time>)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the demo and return the exit code."""
    # here, because it imports torch: the other commands answer at once
    from trainer_hooks.cli.demo.demo import run_demo

    return run_demo(arguments.dir, is_fast=arguments.fast, processes=arguments.processes)
