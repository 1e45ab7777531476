"""CometLogger: log to an experiment of Comet, online or offline."""

from __future__ import annotations

import os
from secrets import token_hex
from threading import RLock
from typing import TYPE_CHECKING, Any

from trainer_hooks._options import STRING, Rule, check_options
from trainer_hooks.loggers.conversion import (
    ConvertingLogger,
    as_dict,
    flattened,
    plain_number,
    require_package,
)

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping, Sequence

_RULES = {
    "workspace": STRING.or_none(),
    "project": STRING.or_none(),
    "experiment_key": STRING.or_none(),
    "prefix": STRING.or_none(),
    "mode": Rule(
        "'get_or_create', 'get' or 'create'",
        lambda value: value in (None, "get_or_create", "get", "create"),
        "Choose one of them.",
    ),
}


class CometLogger(ConvertingLogger):
    """Log metrics, hyperparameters, images, tables and texts to an experiment of Comet.

    The experiment is begun at the first write. It stays open after a training so that you can log
    to it yourself, until `logger.experiment.end()` or the end of the process. A resumed run
    continues the experiment of the same key.

    Args:
        api_key: the API key; by default `COMET_API_KEY`, or the one stored by `comet login`.
        workspace: the workspace; by default `COMET_WORKSPACE`, or that of the account.
        project: the project; by default Comet's own default.
        experiment_key: the key of an experiment to continue, or of a new one: 32 to 50 letters and
            digits.
        mode: `"get"` continues an experiment, `"create"` begins one, `"get_or_create"` (default)
            does whichever fits the key.
        online: False writes to this machine only; `comet upload` sends the files later.
        prefix: text before each metric's name, joined by an underscore.
        **kwargs: for `comet_ml.ExperimentConfig`: `name`, `offline_directory`, `tags`,
            `log_code`...

    Raises:
        OptionError: an argument breaks its rule, or comet_ml is not installed.

    Example::

        trainer = Trainer(logger=CometLogger(project="digits", online=False))
    """

    _connections = ("_experiment",)

    def __init__(
        self,
        *,
        api_key: str | None = None,
        workspace: str | None = None,
        project: str | None = None,
        experiment_key: str | None = None,
        mode: str | None = None,
        online: bool | None = None,
        prefix: str | None = None,
        **kwargs: Any,
    ) -> None:
        require_package("comet_ml", "comet", "CometLogger")
        check_options(
            "CometLogger",
            _RULES,
            workspace=workspace,
            project=project,
            experiment_key=experiment_key,
            prefix=prefix,
            mode=mode,
        )
        # offline it writes to this disk only, for which no thread is needed
        self.in_background = online is not False
        # chosen here and not by Comet: a checkpoint may hold the key before the first write
        self._key = experiment_key or os.environ.get("COMET_EXPERIMENT_KEY") or token_hex(16)
        self._is_chosen = experiment_key is not None
        self._api_key, self._workspace, self._project = api_key, workspace, project
        self._mode, self._online, self._prefix = mode, online, prefix
        self._options = kwargs
        self._experiment: Any = None
        self._calls = 0
        # Comet's records cannot be read back: the last step that this process has sent for each
        # metric lets a resume in the same process send no value twice
        self._sent: dict[str, int] = {}
        self._sent_before: dict[str, int] = {}
        # the training may read `experiment` while the guard's thread logs
        self._lock = RLock()

    @property
    def name(self) -> str | None:
        """Return the project."""
        return self._project

    @property
    def version(self) -> str:
        """Return the experiment's key."""
        return self._key

    @property
    def is_version_chosen(self) -> bool:
        """Return whether the user chose the key."""
        return self._is_chosen

    @property
    def log_dir(self) -> None:
        """Return None: Comet offers no folder to which others may write."""
        return

    @property
    def experiment(self) -> Any:
        """Return Comet's experiment, which is begun by the first call."""
        with self._lock:
            if self._experiment is None:
                self._experiment = self._begin()
            return self._experiment

    def run_state(self) -> dict[str, Any]:
        """Return the project, the experiment's key and the number of calls."""
        return {"project": self._project, "key": self._key, "logged": self._calls}

    def owns_run(self, state: dict[str, Any]) -> bool:
        """Return whether the experiment of a checkpoint is of this project, and not another's."""
        is_free = not self._is_chosen or state["key"] == self._key
        return bool(state["project"] == self._project) and is_free

    def resume_run(self, state: dict[str, Any]) -> None:
        """Continue the experiment of a checkpoint, unless the user chose another."""
        key = state["key"]
        if not self.owns_run(state):
            return
        with self._lock:
            if key != self._key:
                self._key, self._experiment, self._sent = key, None, {}
            self._calls, self._sent_before = state["logged"], dict(self._sent)

    @property
    def save_dir(self) -> str | None:
        """Return the folder of offline experiments, or None if none was given."""
        folder = self._options.get("offline_directory")
        return None if folder is None else os.fspath(folder)

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Log the metrics of one moment; calls without a `step` are numbered."""
        experiment, position = self.experiment, self._calls if step is None else step
        values = {
            key: plain_number(value)
            for key, value in metrics.items()
            if self._sent_before.get(key, -1) < position
        }
        # Comet has a field of its own for the epoch
        epoch = values.pop("epoch", None)
        if values:
            experiment.log_metrics(
                values,
                prefix=self._prefix,
                step=position,
                epoch=None if epoch is None else int(epoch),
            )
            # after the call: one that raises is repeated, and must not count as sent
            self._sent.update(dict.fromkeys(values, position))
        self._calls += 1

    def log_hyperparams(self, params: Mapping[str, Any] | Namespace) -> None:
        """Log hyperparameters; nested ones get names with slashes."""
        self.experiment.log_parameters(flattened(as_dict(params)))

    def _write_images(
        self, key: str, pixels: list[Any], step: int | None, captions: Sequence[str] | None
    ) -> None:
        """Log images, each under its own name: `key/0`, `key/1`..."""
        for index, array in enumerate(pixels):
            note = None if captions is None else {"caption": captions[index]}
            self.experiment.log_image(array, name=f"{key}/{index}", step=step, metadata=note)

    def _write_table(
        self, key: str, names: list[str], rows: list[list[Any]], step: int | None
    ) -> None:
        """Log a table as `key.csv`."""
        self.experiment.log_table(f"{key}.csv", tabular_data=rows, headers=names, step=step)

    def log_text(self, key: str, text: str, step: int | None = None) -> None:
        """Log a text."""
        self.experiment.log_text(text, step=step, metadata={"key": key})

    def finalize(self, status: str) -> None:  # noqa: ARG002 - the experiment stays open
        """Send everything that is still held; the experiment stays open."""
        if self._experiment is not None:
            self._experiment.flush()
        # only the resumed run skips values: the next fit may begin at step 0 again
        self._sent_before = {}

    def _begin(self) -> Any:
        # Comet would patch libraries to log by itself, and warn of those imported before it
        os.environ.setdefault("COMET_DISABLE_AUTO_LOGGING", "1")
        import comet_ml

        return comet_ml.start(
            api_key=self._api_key,
            workspace=self._workspace,
            project=self._project,
            experiment_key=self._key,
            mode=self._mode,
            online=self._online,
            experiment_config=comet_ml.ExperimentConfig(**self._options),
        )
