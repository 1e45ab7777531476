"""OneFile: a saver's file that always has the same name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trainer_hooks.checkpoint import exists, is_remote
from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    import os

__all__ = ["OneFile"]


class OneFile:
    """Take the path of a file apart, and know it again.

    Args:
        save_path: the path.
        where: whose option it is.

    Attributes:
        folder: where it is.
        stem: its name without the suffix.
        suffix: what the name ends in.

    Raises:
        OptionError: it is no path of a file.
    """

    def __init__(self, save_path: str | os.PathLike[str], where: str) -> None:
        text = str(save_path) if isinstance(save_path, Path) else save_path
        if not isinstance(text, str) or not Path(text).name:
            raise OptionError(
                f"save_path {save_path!r} of {where}: it must be the path of a file. Pass one, "
                "such as 'best_model.pt'."
            )
        folder, _, name = text.rpartition("/") if is_remote(text) else ("", "", text)
        path = Path(name)
        self.folder = folder or str(path.parent)
        self.stem, self.suffix = path.stem, path.suffix

    def among(self, path: str, found: list[str], for_now: str) -> list[str]:
        """Return the file, if it is there, and what was saved for now before leaving.

        Args:
            path: the file's.
            found: what is in the folder.
            for_now: the template of the names of what is saved for now.
        """
        begin = for_now.partition("{")[0]
        left = [one for one in found if Path(one).name.startswith(begin)]
        return [path, *left] if exists(path) else left
