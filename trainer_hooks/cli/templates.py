"""Files that a command writes from templates, with names filled in."""

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
    """Write a file for each template of a folder; yield their paths in the target.

    Args:
        folder: holds the templates.
        target: where to; nothing is overwritten.
        package: what stands for PACKAGE in a path.
        names: what is filled in.
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
