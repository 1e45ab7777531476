"""Parts of the loggers of online services: the values and checkpoints still to be sent."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any

from trainer_hooks._options import Rule, check_options
from trainer_hooks.loggers.conversion import ConvertingLogger

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_RULES = {
    "log_model": Rule(
        "True, False or 'all'",
        lambda value: isinstance(value, bool) or value == "all",
        "Choose one of them.",
    ),
}


class AppendOnlyLogger(ConvertingLogger):
    """Base class of the loggers of services whose records cannot be read back: Comet and Neptune.

    It keeps the last step that this process has sent for each metric, so that a resume in the same
    process sends no value twice.

    Args:
        project: the project, or None.
        run_id: the id by which the service finds the run again.
        is_chosen: whether the user chose that id, or the run itself.
        experiment: the service's object for the run, if it was begun already.
    """

    _connections = ("_experiment",)
    _id_name = "id"
    """The name of the run's id in checkpoints."""

    def __init__(
        self, project: str | None, run_id: str, *, is_chosen: bool, experiment: Any = None
    ) -> None:
        self._project, self._id, self._is_chosen = project, run_id, is_chosen
        self._experiment = experiment
        self._calls = 0
        self._sent: dict[str, int] = {}
        self._sent_before: dict[str, int] = {}
        # the training may read `experiment` while the guard's thread logs
        self._lock = RLock()

    @property
    def version(self) -> str:
        """Return the id by which the service finds the run again."""
        return self._id

    @property
    def is_version_chosen(self) -> bool:
        """Return whether the user chose the id."""
        return self._is_chosen

    @property
    def log_dir(self) -> None:
        """Return None: the service offers no folder to which others may write."""
        return

    @property
    def experiment(self) -> Any:
        """Return the service's object for the run, which is begun by the first call."""
        with self._lock:
            if self._experiment is None:
                self._experiment = self._begin()
            return self._experiment

    def run_state(self) -> dict[str, Any]:
        """Return the project, the run's id and the number of calls."""
        return {"project": self._project, self._id_name: self._id, "logged": self._calls}

    def resume_run(self, state: dict[str, Any]) -> None:
        """Continue the run of a checkpoint."""
        if not self._takes_run(state):
            return
        run_id = state[self._id_name]
        with self._lock:
            if run_id != self._id:
                self._id, self._experiment, self._sent = run_id, None, {}
            # the service cannot be asked for its steps, so only those of this process are skipped
            self._calls, self._sent_before = state["logged"], dict(self._sent)

    def _takes_run(self, state: dict[str, Any]) -> bool:
        """Return whether the run of a checkpoint is gone on with: the user chose no other."""
        is_chosen_other = self._is_chosen and state[self._id_name] != self._id
        return state["project"] == self._project and not is_chosen_other

    def _is_unsent(self, name: str, step: int) -> bool:
        """Return whether a value was not sent before the resume."""
        return self._sent_before.get(name, -1) < step

    @abstractmethod
    def _begin(self) -> Any:
        """Begin the run, or continue that of the id, and return the service's object for it."""


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
