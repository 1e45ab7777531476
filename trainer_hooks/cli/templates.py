"""Files that a command creates from templates."""

from __future__ import annotations

from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from importlib.resources.abc import Traversable

__all__ = ["write_templates"]

_SUFFIX = ".template"


def write_templates(
    folder: Traversable, target: Path, package: str, names: Mapping[str, str]
) -> Iterator[Path]:
    """Write a file for each template in a folder, and yield the paths relative to the target.

    Args:
        folder: the folder with the templates.
        target: the folder to write to; no existing file is overwritten.
        package: the text that replaces PACKAGE in a path.
        names: the values of the placeholders in the templates.
    """
    for path, template in sorted(_templates(folder)):
        place = Path(path.removesuffix(_SUFFIX).replace("PACKAGE", package))
        # no Jinja: names alone go in, and the braces of Python and TOML stay what they are
        text = Template(template).substitute(names)
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
