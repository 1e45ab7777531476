"""`trainer-hooks new PROJECT`: create a project with a training."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from trainer_hooks._version import __version__
from trainer_hooks.cli.commands import add_target, is_free, print_failure
from trainer_hooks.cli.plugins.new import PluginNames
from trainer_hooks.cli.templates import write_templates

if TYPE_CHECKING:
    import argparse

    from trainer_hooks.cli.commands import Commands

__all__ = ["add_parser", "run", "write_project"]


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
    """Create the project and return the exit code."""
    return write_project(arguments.name, arguments.dir)


_UNWRITTEN = 1


def write_project(name: str, folder: Path | None) -> int:
    """Write the project, print the next steps, and return the exit code.

    Args:
        name: the project's name.
        folder: the target folder; by default a folder of that name in the working directory.
    """
    names = PluginNames(name)
    target = Path(name) if folder is None else folder
    if names.fault:
        return print_failure("new", f"the name {name!r} is refused: {names.fault}")
    if names.package == "tests":
        return print_failure("new", f"the name {name!r} is refused: the tests stand in that folder")
    filled_in = {
        "distribution": names.entry_point,
        "package": names.package,
        "version": ".".join(__version__.split(".")[:2]),
    }
    try:
        if not is_free(target):
            return print_failure(
                "new",
                f"{target} is there already: nothing is overwritten. Name a new or empty folder "
                "with --dir.",
            )
        templates = files("trainer_hooks.cli.new") / "templates"
        written = list(write_templates(templates, target, names.package, filled_in))
    except OSError as error:
        print_failure("new", str(error))
        return _UNWRITTEN
    print(
        f"project {names.entry_point}, package {names.package}\n",
        f"written to {target}:",
        *(f"  {path}" for path in written),
        "\nNext:",
        f"  cd {target}",
        "  trainer-hooks fit --config config.yaml",
        "  python -m pytest",
        f"\nThen write your own module, in {Path(names.package, 'module.py')}.",
        sep="\n",
    )
    return 0
