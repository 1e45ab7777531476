"""Start: the checkpoint that a run starts from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainer_hooks import checkpoint
from trainer_hooks.errors import UsageError

if TYPE_CHECKING:
    import os

    from trainer_hooks.connector import LoadReport

__all__ = ["Start"]


@dataclass(slots=True)
class Start:
    """The checkpoint that a run starts from, or the last one did.

    Attributes:
        path: its path, or None.
        named_path: the same, but None where `"last"`, `"best"` or `"auto"` chose it.
        is_auto: whether it is to be found, or the training begins anew.
        is_open: whether the run under way has yet to read it.
        found: what the connector found as it restored the callbacks, until it is reported.
        report: what restoring it found.
    """

    path: str | None = None
    named_path: str | None = None
    is_auto: bool = False
    is_open: bool = False
    found: LoadReport | None = None
    report: LoadReport | None = None

    def choose(self, path: str | os.PathLike[str] | None) -> None:
        """Let the run under way start from another checkpoint than it was given.

        Raises:
            UsageError: there is no run that has yet to read it.
        """
        if not self.is_open:
            raise UsageError(
                f"trainer.ckpt_path was set to {path!r} when no run had yet to read it: a callback "
                "may set it in setup, on_configure_model or on_before_load. Otherwise pass it: "
                "fit(ckpt_path=...)."
            )
        self.path = self.named_path = None if path is None else checkpoint.located(path)
