"""Uploads: which checkpoints a logger keeps as artifacts, and when."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trainer_hooks.errors import OptionError

__all__ = ["Uploads"]


class Uploads:
    """Say which files are to be uploaded, each version of a file once.

    Args:
        log_model: False for none, True for those that are left at the end, `"all"` for each as it
            is saved. A callback with `save_top_k=-1` keeps all, so True does the same there.
        owner: the class of the logger, for messages.

    Raises:
        OptionError: it is something else.
    """

    def __init__(self, log_model: object, owner: str) -> None:
        if not (isinstance(log_model, bool) or log_model == "all"):
            raise OptionError(
                f"log_model {log_model!r} of {owner}: must be True, False or 'all'. "
                "Choose one of them."
            )
        self._log_model = log_model
        self._callbacks: dict[str, Any] = {}
        self._known: dict[str, int] = {}

    def after_save(self, callback: Any) -> list[tuple[str, list[str]]]:
        """Return the files to upload now, with what each is called: `"latest"`, `"best"`."""
        if self._log_model is False:
            return []
        self._callbacks[callback.state_key] = callback
        if self._log_model == "all" or getattr(callback, "save_top_k", None) == -1:
            return self._new(callback)
        return []

    def at_end(self) -> list[tuple[str, list[str]]]:
        """Return the files to upload at the end of a run."""
        return [found for callback in self._callbacks.values() for found in self._new(callback)]

    def note(self, path: str) -> None:
        """Note that the present version of a file is uploaded."""
        self._known[path] = Path(path).stat().st_mtime_ns

    def _new(self, callback: Any) -> list[tuple[str, list[str]]]:
        best = getattr(callback, "best_model_path", "")
        paths = [*getattr(callback, "best_k_models", {}), getattr(callback, "last_model_path", "")]
        files = [Path(path) for path in dict.fromkeys([*paths, best]) if path]
        new = [
            (path.stat().st_mtime_ns, str(path))
            for path in files
            if path.is_file() and self._known.get(str(path)) != path.stat().st_mtime_ns
        ]
        return [
            (path, ["latest", "best"] if path == best else ["latest"]) for _, path in sorted(new)
        ]
