"""`trainer-hooks new PROJECT`: create a project with a training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trainer_hooks.cli.commands import add_target
from trainer_hooks.cli.templates import PackageNames, write_package

if TYPE_CHECKING:
    import argparse

    from trainer_hooks.cli.commands import Commands


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
    parser.add_argument(
        "--own-loop",
        action="store_true",
        help="with a loop of your own in place of a module and a config (docs/own-loop.md)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Create the project and return the exit code."""
    names = PackageNames(arguments.name)
    return write_package(
        "new",
        names,
        arguments.dir,
        # beside the package there is a folder `tests`: a package of that name would be the same one
        fault=names.fault or ("the tests stand in that folder" if names.package == "tests" else ""),
        values={"distribution": names.entry_point},
        steps=(
            f"project {names.entry_point}, package {names.package}",
            f"python -m {names.package}.train"
            if arguments.own_loop
            else "trainer-hooks fit --config config.yaml",
            "python -m pytest",
            f"loop, in {Path(names.package, 'train.py')}"
            if arguments.own_loop
            else f"module, in {Path(names.package, 'module.py')}",
        ),
        templates="own_loop_templates" if arguments.own_loop else "templates",
    )
