"""Packages that a command creates from templates."""

from __future__ import annotations

import importlib.util
import keyword
import re
import sys
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from trainer_hooks._system import shell_line
from trainer_hooks._text import printable
from trainer_hooks._version import __version__
from trainer_hooks.cli.commands import is_free, print_failure
from trainer_hooks.hooks.plugin import normal_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from importlib.resources.abc import Traversable

# as packaging.utils checks it, which need not be installed
_NAME = re.compile(r"[A-Z0-9]([A-Z0-9._-]*[A-Z0-9])?", re.IGNORECASE | re.ASCII)
_UNWRITTEN = 1
# so that no linter, type checker or test run takes a template for code of this package
_SUFFIX = ".template"


@dataclass(frozen=True, slots=True)
class PackageNames:
    """The names inside a new package, all derived from one.

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
                f"begins and ends with a letter or a digit. Try: {self._nearest}"
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

    @property
    def _nearest(self) -> str:
        """The name with all that is not allowed replaced; an example if nothing stays."""
        words = re.findall(r"[a-z0-9]+", self.distribution.lower(), re.ASCII)
        return "-".join(words) or "my-project"

    def _owner(self) -> str:
        """Return a description of the module or distribution that has the name already."""
        from importlib_metadata import PackageNotFoundError, distribution

        # of a name without dots this imports nothing
        spec = importlib.util.find_spec(self.package)
        if spec is not None and spec.origin is not None:  # without, it is but a folder
            return f"its package {self.package!r} is there already, in {spec.origin}"
        try:
            version = distribution(self.distribution).version
        except PackageNotFoundError:
            return ""
        return f"a distribution of that name is installed already, in version {version}"


def write_package(
    command: str,
    names: PackageNames,
    folder: Path | None,
    *,
    fault: str,
    values: Mapping[str, str],
    steps: Sequence[str],
    templates: str = "templates",
) -> int:
    """Write the package, print the next steps, and return the exit code.

    Args:
        command: the command; the templates are in its folder.
        names: the names inside the package.
        folder: the target folder; by default a folder of that name in the working directory.
        fault: the error in the name; if there is one, nothing is written.
        values: the values of the placeholders in the templates, beside package and version.
        steps: the lines to print: the names, then what to do in the folder, and what to edit.
        templates: the folder of the templates.
    """
    target = Path(names.distribution) if folder is None else folder
    if fault:
        reason = f"the name {names.distribution!r} is refused: {fault}"
        return print_failure(command, reason)
    values = {
        **values,
        "package": names.package,
        # the least version that the new package asks for: major and minor, of any patch
        "version": ".".join(__version__.split(".")[:2]),
    }
    source = files(f"trainer_hooks.cli.{command.partition(' ')[0]}") / templates
    try:
        if not is_free(target):
            return print_failure(
                command,
                f"{target} is there already: nothing is overwritten. Name a new or empty folder "
                "with --dir.",
            )
        written = list(_write_templates(source, target, values))
    except OSError as error:
        print_failure(command, str(error))
        return _UNWRITTEN
    title, *commands, last = steps
    place = printable(target)
    print(
        f"{title}\n",
        f"written to {place}:",
        *(f"  {path}" for path in written),
        "\nNext:",
        *(f"  {line}" for line in (f"cd {shell_line([place])}", *commands)),
        f"\nThen write your own {last}.",
        sep="\n",
    )
    return 0


def _write_templates(
    folder: Traversable, target: Path, values: Mapping[str, str]
) -> Iterator[Path]:
    """Write a file for each template in a folder, and yield the paths relative to the target.

    Args:
        folder: the folder with the templates.
        target: the folder to write to; no existing file is overwritten.
        values: the values of the placeholders; that of `package` replaces PACKAGE in paths too.
    """
    # all templates are read before the first file is written
    for path, template in sorted(_templates(folder)):
        place = Path(path.removesuffix(_SUFFIX).replace("PACKAGE", values["package"]))
        # no Jinja: names alone go in, and the braces of Python and TOML stay what they are
        text = Template(template).substitute(values)
        (target / place).parent.mkdir(parents=True, exist_ok=True)
        with (target / place).open("x", encoding="utf-8") as file:  # x: nothing is overwritten
            file.write(text)
        yield place


def _templates(folder: Traversable, within: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each template."""
    for item in folder.iterdir():
        if item.is_dir():
            yield from _templates(item, f"{within}{item.name}/")
        elif item.name.endswith(_SUFFIX):
            yield f"{within}{item.name}", item.read_text(encoding="utf-8")
