"""Files of a saver on disk: what a save writes, which names are free, what may be removed."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainer_hooks.callbacks.filenames import read_template

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection

__all__ = ["Plan", "free_path", "is_removable", "link_to", "matching_files", "resolved_folder"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What one save does.

    Attributes:
        files: the paths to write, in this order.
        obsolete: paths to remove once the last of `files` is durable.
        link: a path that then becomes a link to the first of `files`.
    """

    files: tuple[str, ...]
    obsolete: tuple[str, ...] = ()
    link: str | None = None


def resolved_folder(path: str | os.PathLike[str]) -> str:
    """Return `path` absolute, with `~` and links resolved."""
    return str(Path(path).expanduser().resolve())


def free_path(name: Callable[[int | None], str], first: int, reusable: Collection[str]) -> str:
    """Return the first of `name(None)`, `name(first)`, `name(first + 1)`... that no file has.

    Args:
        name: gives the path for a version.
        first: the first version.
        reusable: paths that may be written over.
    """
    path, version = name(None), first
    while path not in reusable and (Path(path).exists() or Path(path).is_symlink()):
        path, version = name(version), version + 1
    return path


def is_removable(
    path: str, folder: str | None, resumed_from: str | os.PathLike[str] | None
) -> bool:
    """Return whether a saver may remove `path`.

    It may if the file lies in its own folder and is not the one that this run was resumed from,
    whichever way the two are written.
    """
    if folder is None:
        return False
    file = Path(path)
    # the file itself may be a link, and it is the link that would go: resolve its folder only
    if not (file.parent.resolve() / file.name).is_relative_to(Path(folder).resolve()):
        return False
    return resumed_from is None or Path(resumed_from).resolve() != file.resolve()


def matching_files(folder: str, template: str) -> list[tuple[str, dict[str, str]]]:
    """Return the files in a folder whose name a template can have made, and what stands in it.

    Args:
        folder: where; there may be none.
        template: text with fields, which may lead into folders below.
    """
    root = Path(folder)
    levels = "/".join("*" for _ in Path(template).parts)
    found = []
    for path in root.glob(levels):
        values = read_template(template, path.relative_to(root).as_posix())
        if values is not None:
            found.append((str(path), values))
    return found


def link_to(target: str, link: str) -> None:
    """Make `link` point to `target`, at once; where links are not allowed, make it a copy."""
    path = Path(link)
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    try:
        fresh.symlink_to(_seen_from(path.parent, target))
    except OSError:  # Windows allows links to some users only
        shutil.copy2(target, fresh)
    fresh.replace(path)


def _seen_from(folder: Path, target: str) -> Path:
    """Return `target` relative to `folder` where it is inside, so that both can be moved."""
    path = Path(target)
    return path.relative_to(folder) if path.is_relative_to(folder) else path
