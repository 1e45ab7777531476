"""`trainer-hooks plugins new`: create a package with a callback."""

from __future__ import annotations

import importlib.util
import keyword
import re
import sys
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from trainer_hooks._version import __version__
from trainer_hooks.cli.commands import is_free, print_failure
from trainer_hooks.cli.templates import write_templates
from trainer_hooks.hooks.plugin import normal_name

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["PluginNames", "write_plugin"]

# as packaging.utils checks it, which need not be installed
_NAME = re.compile(r"[A-Z0-9]([A-Z0-9._-]*[A-Z0-9])?", re.IGNORECASE | re.ASCII)
_UNWRITTEN = 1


@dataclass(frozen=True, slots=True)
class PluginNames:
    """The names inside a new plugin package, all derived from one.

    Attributes:
        distribution: the name for `pip install`.
    """

    distribution: str

    @property
    def entry_point(self) -> str:
        """The entry point's name."""
        return normal_name(self.distribution)

    @property
    def package(self) -> str:
        """The import name."""
        return self.entry_point.replace("-", "_")

    @property
    def callback(self) -> str:
        """The name of the callback's class."""
        words = self.entry_point.removesuffix("-callback").removesuffix("-callbacks").split("-")
        return "".join(word.capitalize() for word in words) + "Callback"

    @property
    def variable(self) -> str:
        """The environment variable that silences the callback."""
        return f"{self.package.upper()}_QUIET"

    @property
    def fault(self) -> str:
        """The error in the name with its remedy, or an empty string."""
        if not _NAME.fullmatch(self.distribution):
            return (
                "a distribution's name has only letters, digits, '-', '_' and '.' (ASCII), and "
                "begins and ends with a letter or a digit. Try: my-monitor"
            )
        if not self.package.isidentifier() or keyword.iskeyword(self.package):
            return (
                f"its package would be {self.package!r}, which cannot be imported. Begin it with a "
                f"letter, and add a word: {'my-' + self.entry_point}"
            )
        if self.package in sys.stdlib_module_names:
            return (
                f"its package {self.package!r} would be confused with the one of Python's own "
                f"library. Add a word: my-{self.entry_point}"
            )
        owner = self._owner()
        return owner and f"{owner}. Choose a name that is not taken, or uninstall that one first."

    def _owner(self) -> str:
        """Return a description of the module or distribution that has the name already."""
        from importlib_metadata import PackageNotFoundError, distribution

        spec = importlib.util.find_spec(self.package)
        if spec is not None and spec.origin is not None:  # without, it is but a folder
            return f"its package {self.package!r} is there already, in {spec.origin}"
        try:
            version = distribution(self.distribution).version
        except PackageNotFoundError:
            return ""
        return f"a distribution of that name is installed already, in version {version}"


def write_plugin(name: str, folder: Path | None) -> int:
    """Write the package, print the next steps, and return the exit code.

    Args:
        name: the distribution's name.
        folder: the target folder; by default a folder of that name in the working directory.
    """
    names = PluginNames(name)
    target = Path(name) if folder is None else folder
    fault = names.fault and f"the name {name!r} is refused: {names.fault}"
    try:
        fault = fault or _fault_of_folder(target)
        if fault:
            return print_failure("plugins new", fault)
        written = list(_write(names, target))
    except OSError as error:
        print_failure("plugins new", str(error))
        return _UNWRITTEN
    print(
        f"distribution {names.distribution}, package {names.package}, callback {names.callback}, "
        f"entry point {names.entry_point}\n",
        f"written to {target}:",
        *(f"  {path}" for path in written),
        "\nNext:",
        f"  cd {target}",
        '  pip install -e ".[test]"',
        "  pytest",
        "  trainer-hooks plugins list",
        f"\nThen write your own hooks, in {Path('src', names.package, 'callback.py')}.",
        sep="\n",
    )
    return 0


def _fault_of_folder(folder: Path) -> str:
    if not is_free(folder):
        return (
            f"{folder} is there already: nothing is overwritten. Name a new or empty folder with "
            "--dir."
        )
    return ""


def _write(names: PluginNames, target: Path) -> Iterator[Path]:
    """Write the package's files and yield their paths in the package."""
    filled_in = {
        "distribution": names.distribution,
        "entry_point": names.entry_point,
        "package": names.package,
        "callback": names.callback,
        "variable": names.variable,
        "version": ".".join(__version__.split(".")[:2]),
    }
    templates = files("trainer_hooks.cli.plugins") / "templates"
    return write_templates(templates, target, names.package, filled_in)
