"""Parts of the loggers of online services: the values and checkpoints still to be sent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer_hooks._options import Rule, check_options

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_RULES = {
    "log_model": Rule(
        "True, False or 'all'",
        lambda value: isinstance(value, bool) or value == "all",
        "Choose one of them.",
    ),
}


class RecordedSteps:
    """Metrics that a resumed run holds already, by name and step, as read back from the service.

    Args:
        pairs: names and steps of the recorded values.
    """

    def __init__(self, pairs: Iterable[tuple[str, int]] = ()) -> None:
        self._pairs = set(pairs)
        self._last = max((step for _, step in self._pairs), default=-1)

    def without(self, metrics: Mapping[str, float], step: int) -> dict[str, float]:
        """Return the metrics that the run has no value of at this step."""
        # the common case, once the resumed run has caught up
        if step > self._last:
            return dict(metrics)
        return {key: value for key, value in metrics.items() if (key, step) not in self._pairs}


class CheckpointUploads:
    """Selects the checkpoints that a logger uploads, each version of a file once.

    Args:
        log_model: False for none, True for those that are left at the end, `"all"` for each as it
            is saved. A callback with `save_top_k=-1` keeps all, so True does the same there.
        owner: the class of the logger, for messages.

    Raises:
        OptionError: `log_model` has another value.
    """

    def __init__(self, log_model: object, owner: str) -> None:
        check_options(owner, _RULES, log_model=log_model)
        self._log_model = log_model
        self._callbacks: dict[str, Any] = {}
        self._known: dict[str, int] = {}

    def after_save(self, callback: Any) -> list[tuple[str, list[str]]]:
        """Return the files to upload after a save, each with its aliases: `"latest"`, `"best"`."""
        if self._log_model is False:
            return []
        self._callbacks[callback.state_key] = callback
        if self._log_model == "all" or getattr(callback, "save_top_k", None) == -1:
            return self._new(callback)
        # oldest first, so that a service's alias `latest` ends at the newest
        return []

    def at_end(self) -> list[tuple[str, list[str]]]:
        """Return the files to upload at the end of a run, each with its aliases."""
        return [file for callback in self._callbacks.values() for file in self._new(callback)]

    def note(self, path: str) -> None:
        """Record that the present version of a file is uploaded."""
        self._known[path] = Path(path).stat().st_mtime_ns

    def _new(self, callback: Any) -> list[tuple[str, list[str]]]:
        best = getattr(callback, "best_model_path", "")
        paths = [*getattr(callback, "best_k_models", {}), getattr(callback, "last_model_path", "")]
        files = [Path(path) for path in dict.fromkeys([*paths, best]) if path]
        # by the time of change: `last.ckpt` keeps its name while its content changes
        new = [
            (path.stat().st_mtime_ns, str(path))
            for path in files
            # retention may have deleted a file by now
            if path.is_file() and self._known.get(str(path)) != path.stat().st_mtime_ns
        ]
        return [
            (path, ["latest", "best"] if path == best else ["latest"]) for _, path in sorted(new)
        ]
