"""`trainer-hooks plugins list|check|new`: the parser of the command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trainer_hooks.cli.commands import add_target, print_failure
from trainer_hooks.cli.templates import PackageNames, write_package
from trainer_hooks.errors import PluginError

if TYPE_CHECKING:
    import argparse

    from trainer_hooks.cli.commands import Commands


def add_parser(commands: Commands) -> None:
    """Declare the command and its subcommands."""
    parser = commands.add_parser(
        "plugins",
        help="list the installed plugins, check them, or begin a new one",
        description="List the installed plugins, check them, or begin a new one.",
    )
    actions = parser.add_subparsers(
        dest="action", title="commands", metavar="COMMAND", required=True
    )
    listing = actions.add_parser(
        "list",
        help="what is installed, and what became of it",
        description=(
            "Load the installed plugins as a Trainer does, and list them: whose they are, what "
            "they supply, to what it listens, and why one does not take part. The environment "
            "variables TRAINER_HOOKS_*_PLUGINS count as in a run."
        ),
        epilog="The exit code is 0, also if a plugin is broken: the list says so.",
    )
    checking = actions.add_parser(
        "check",
        help="whether what plugins supply keeps the contract of callbacks",
        description=(
            "Run the author's test kit, trainer_hooks.testing, on what installed plugins supply. "
            "It trains a tiny model many times, on the CPU, for some seconds each."
        ),
        epilog="The exit code is 1 if there is a defect, and 2 if a name is not installed.",
    )
    checking.add_argument(
        "names", nargs="*", metavar="NAME", help="a distribution or an entry point (default: all)"
    )
    checking.add_argument(
        "--may-differ",
        action="append",
        default=[],
        metavar="KEY",
        help="a key of the state, or a hook, that a resume may change: a time, a number of runs "
        "(repeatable)",
    )
    checking.add_argument(
        "--skip", action="append", default=[], metavar="CHECK", help="a check to leave out"
    )
    checking.add_argument(
        "--everywhere",
        action="store_true",
        help="run the callbacks in the installed trainers of other frameworks, too",
    )
    for action in (listing, checking):
        action.add_argument("--json", action="store_true", help="write JSON")
    creating = actions.add_parser(
        "new",
        help="write a package with a callback, to begin with",
        description=(
            "Write a package that can be published: a callback with state, its factory, the entry "
            "point, a test with the author's test kit, a README."
        ),
        epilog="Example: trainer-hooks plugins new my-monitor",
    )
    add_target(creating, "NAME", "the distribution's name, as `pip install` takes")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the chosen subcommand and return the exit code."""
    if arguments.action in ("list", "check"):
        try:
            return _run_on_installed(arguments)
        except PluginError as error:  # the environment names a plugin that is not there
            return print_failure(f"plugins {arguments.action}", str(error))
    names = PackageNames(arguments.name)
    return write_package(
        "plugins new",
        names,
        arguments.dir,
        fault=names.fault,
        values={
            "distribution": names.distribution,
            "entry_point": names.entry_point,
            "callback": names.callback,
            "variable": names.variable,
        },
        steps=(
            (
                f"distribution {names.distribution}, package {names.package}, "
                f"callback {names.callback}, entry point {names.entry_point}"
            ),
            'pip install -e ".[test]"',
            "pytest",
            "trainer-hooks plugins list",
            f"hooks, in {Path('src', names.package, 'callback.py')}",
        ),
    )


def _run_on_installed(arguments: argparse.Namespace) -> int:
    """List or check the installed plugins, and return the exit code."""
    # imported here: `new` and the help answer without loading a plugin, `list` without torch
    if arguments.action == "list":
        from trainer_hooks.cli.plugins.survey import list_plugins

        return list_plugins(is_json=arguments.json)
    from trainer_hooks.cli.plugins.check import check_plugins

    return check_plugins(
        arguments.names,
        may_differ=arguments.may_differ,
        skip=arguments.skip,
        everywhere=arguments.everywhere,
        is_json=arguments.json,
    )
