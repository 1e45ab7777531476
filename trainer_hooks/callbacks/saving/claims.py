"""Claims: the names of files that are about to be written, kept from other runs until then."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trainer_hooks.checkpoint import claim_name, exists, is_remote

if TYPE_CHECKING:
    from trainer_hooks.checkpoint import NameClaim

__all__ = ["Claims"]


class Claims:
    """Keep the names of new files, so that of two runs that ask at one moment one has each.

    A name is kept from when it is chosen until its file is there. Those of a process that was
    killed are free again. In stores that are reached by an address nothing is kept.
    """

    def __init__(self) -> None:
        self._held: dict[str, NameClaim] = {}

    def take(self, path: str) -> bool:
        """Return whether a path is free, and keep it then."""
        if is_remote(path):
            return not exists(path)
        if exists(path):
            self.release(path)
            return False
        if path in self._held:
            return True
        claim = claim_name(Path(path))
        if claim is None:
            return False
        self._held[path] = claim
        if exists(path):  # written since it was looked for
            self.release(path)
            return False
        return True

    def release(self, *paths: str | None) -> None:
        """Let go of what is kept of these paths."""
        for path in paths:
            claim = self._held.pop(path or "", None)
            if claim is not None:
                claim.release()

    def release_all(self) -> None:
        """Let go of all that is kept."""
        self.release(*self._held)

    def __reduce__(self) -> tuple[type[Claims], tuple[()]]:
        return type(self), ()  # a copy keeps nothing
