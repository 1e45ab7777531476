"""`trainer-hooks hooks [NAME]`: the parser of the command."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from trainer_hooks.cli.commands import Commands


def add_parser(commands: Commands) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "hooks",
        help="list the hooks, or tell all about one",
        description=(
            "List every hook, or tell all about one: when it fires, what it is given, its names in "
            "other frameworks, its place in the loop, and a method to copy."
        ),
        epilog="Example: trainer-hooks hooks on_train_batch_end",
    )
    parser.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        help="a hook, by its name here, in Lightning, in Composer or in pytorch-accelerated",
    )
    parser.add_argument("--json", action="store_true", help="write JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """List the hooks or describe one, and return the exit code."""
    # not at the top: every command makes this parser, and few read the catalogue
    from trainer_hooks.cli.hooks.listing import show_hooks

    return show_hooks(arguments.name, as_json=arguments.json)
