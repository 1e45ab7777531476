"""`trainer-hooks new PROJECT`: a project with a training, to begin with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks.cli.commands import add_target

if TYPE_CHECKING:
    import argparse

    from trainer_hooks.cli.commands import Commands

__all__ = ["add_parser", "run"]


def add_parser(commands: Commands) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "new",
        help="write a project with a module, data, a config and tests, to begin with",
        description=(
            "Write a small project: a module, its data, a callback, a config, and tests, which it "
            "passes, as it does ruff and mypy."
        ),
        epilog="Example: trainer-hooks new my-project",
    )
    add_target(parser, "PROJECT", "the project's name")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Do what was asked for and return the exit code."""
    from trainer_hooks.cli.new.project import write_project

    return write_project(arguments.name, arguments.dir)
