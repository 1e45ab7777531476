"""Write a new project."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from trainer_hooks._version import __version__
from trainer_hooks.cli.commands import failed, is_free
from trainer_hooks.cli.plugins.new import Names
from trainer_hooks.cli.templates import write_templates

__all__ = ["write_project"]

_UNWRITTEN = 1


def write_project(name: str, folder: Path | None) -> int:
    """Write the project, say what to do next, and return the exit code.

    Args:
        name: the project's name.
        folder: where to; a folder of that name in the working directory unless given.
    """
    names = Names(name)
    target = Path(name) if folder is None else folder
    if names.fault:
        return failed("new", f"the name {name!r} is refused: {names.fault}")
    if names.package == "tests":
        return failed("new", f"the name {name!r} is refused: the tests stand in that folder")
    filled_in = {
        "distribution": names.entry_point,
        "package": names.package,
        "version": ".".join(__version__.split(".")[:2]),
    }
    try:
        if not is_free(target):
            return failed(
                "new",
                f"{target} is there already: nothing is overwritten. Name a new or empty folder "
                "with --dir.",
            )
        templates = files("trainer_hooks.cli.new") / "templates"
        written = list(write_templates(templates, target, names.package, filled_in))
    except OSError as error:
        failed("new", str(error))
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
