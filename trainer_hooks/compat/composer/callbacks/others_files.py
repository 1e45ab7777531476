"""OthersFiles: what lies in a saver's folder, and another training saved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks.callbacks.saving.templates import names_of, read_template, template_names
from trainer_hooks.checkpoint import exists, files_in, name_of
from trainer_hooks.errors import CheckpointError

if TYPE_CHECKING:
    from trainer_hooks.callbacks.saving.saver import Saver
    from trainer_hooks.context import Trainer

__all__ = ["OthersFiles"]

_COUNTERS = ("epoch", "batch", "step")
_SHOWN = 3


class OthersFiles:
    """Keep a training from writing over files that it did not save.

    Args:
        saver: in whose folder they are; it has a filename.
        where: whose rule it is, for messages.
    """

    def __init__(self, saver: Saver, where: str) -> None:
        self._saver, self._where = saver, where

    def fields_of(self, path: str) -> dict[str, str] | None:
        """Return what stands in a path's name, or None if the filename cannot have made it."""
        template = self._saver.filename or ""
        parts = path.split("/")[-1 - template.count("/") :]
        return read_template(template, "/".join(parts))

    def refuse_later(self, trainer: Trainer) -> None:
        """Make sure that there is none whose name this training is still going to use.

        Raises:
            CheckpointError: there are some; the first are named.
        """
        now, template = names_of(trainer), self._saver.filename or ""
        counters = [name for name in template_names(template) if name in _COUNTERS]
        self._refuse(
            [
                path
                for path in files_in(self._saver.dirpath or "", "", template.count("/"))
                if (values := self.fields_of(path)) is not None
                and path not in self._saver.ledger.books.best_k_models
                and (not counters or any(int(values[name]) > now[name] for name in counters))
            ]
        )

    def refuse_at(self, path: str) -> None:
        """Make sure that there is none at the path of the file that is about to be saved.

        Raises:
            CheckpointError: there is.
        """
        if path not in self._saver.ledger.books.best_k_models and exists(path):
            self._refuse([path])

    def _refuse(self, paths: list[str]) -> None:
        if not paths:
            return
        shown = ", ".join(repr(name_of(path)) for path in sorted(paths)[:_SHOWN])
        more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
        raise CheckpointError(
            f"files {shown}{more} in {self._saver.dirpath!r}, the folder of {self._where}: this "
            "training would write over them, and did not save them. Resume from the newest with "
            "fit(ckpt_path=...), choose another folder, or pass overwrite=True."
        )
