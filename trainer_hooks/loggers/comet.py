"""CometLogger: an experiment of Comet, online or offline."""

from __future__ import annotations

import os
from secrets import token_hex
from threading import RLock
from typing import TYPE_CHECKING, Any

from trainer_hooks.errors import OptionError
from trainer_hooks.loggers.base import Logger
from trainer_hooks.loggers.hparams import as_dict, flattened, plain_number
from trainer_hooks.loggers.media import as_pixels, as_table, require_package
from trainer_hooks.loggers.run_folder import check_text
from trainer_hooks.loggers.sent import Sent

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping, Sequence

__all__ = ["CometLogger"]

_MODES = (None, "get_or_create", "get", "create")


class CometLogger(Logger):
    """Write to an experiment of Comet: metrics, parameters, images, tables and texts.

    The experiment is begun at the first write, and stays open after a training, for what you log
    yourself; `logger.experiment.end()` ends it, and so does the end of the process. A run that is
    resumed goes on in the experiment of the same key.

    Args:
        api_key: by default `COMET_API_KEY`, or what `comet login` has kept.
        workspace: by default `COMET_WORKSPACE`, or that of the account.
        project: the project; Comet's own default unless given.
        experiment_key: an experiment to go on with, or the key of a new one, of 32 to 50 letters
            and digits.
        mode: `"get"` goes on with an experiment, `"create"` begins one, `"get_or_create"` does
            what fits the key, and is the default.
        online: False writes to this machine only; `comet upload` sends it later.
        prefix: put before each metric's name, with an underscore.
        **kwargs: for `comet_ml.ExperimentConfig`: `name`, `offline_directory`, `tags`,
            `log_code`...

    Raises:
        OptionError: an argument breaks its rule, or comet_ml is not installed.

    Example::

        trainer = Trainer(logger=CometLogger(project="digits", online=False))
    """

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
        texts = {"workspace": workspace, "project": project, "experiment_key": experiment_key}
        for argument, value in (texts | {"prefix": prefix}).items():
            if value is not None:
                check_text(argument, value, "CometLogger")
        if mode not in _MODES:
            raise OptionError(
                f"mode {mode!r} of CometLogger: must be 'get_or_create', 'get' or 'create'. "
                "Choose one of them."
            )
        self.in_background = online is not False
        self._api_key, self._workspace, self._project = api_key, workspace, project
        self._is_chosen = experiment_key is not None
        self._key = experiment_key or os.environ.get("COMET_EXPERIMENT_KEY") or token_hex(16)
        self._mode, self._online, self._prefix = mode, online, prefix
        self._options = kwargs
        self._experiment: Any = None
        self._sent = Sent()
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
    def save_dir(self) -> str | None:
        """Return the folder of offline experiments, if one was given."""
        folder = self._options.get("offline_directory")
        return None if folder is None else os.fspath(folder)

    @property
    def log_dir(self) -> None:
        """Return None: Comet gives an experiment no folder that others may write to."""
        return

    @property
    def experiment(self) -> Any:
        """Return the experiment, begun at the first call."""
        with self._lock:
            if self._experiment is None:
                self._experiment = self._begin()
            return self._experiment

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Log the values of one moment; without a `step` the calls are numbered."""
        experiment, place = self.experiment, self._sent.calls if step is None else step
        values = {
            key: plain_number(value)
            for key, value in metrics.items()
            if self._sent.is_new(key, place)
        }
        epoch = values.pop("epoch", None)
        if values:
            experiment.log_metrics(
                values, prefix=self._prefix, step=place, epoch=None if epoch is None else int(epoch)
            )
            for key in values:
                self._sent.note(key, place)
        self._sent.calls += 1

    def log_hyperparams(self, params: Mapping[str, Any] | Namespace) -> None:
        """Log hyperparameters; nested ones get names with slashes."""
        self.experiment.log_parameters(flattened(as_dict(params)))

    def log_image(
        self,
        key: str,
        images: Sequence[Any],
        step: int | None = None,
        *,
        captions: Sequence[str] | None = None,
        channels_last: bool = False,
    ) -> None:
        """Log images, each under a name of its own, `key/0`, `key/1`..."""
        pixels = [as_pixels(image, key, channels_last=channels_last) for image in images]
        for index, array in enumerate(pixels):
            note = None if captions is None else {"caption": captions[index]}
            self.experiment.log_image(array, name=f"{key}/{index}", step=step, metadata=note)

    def log_table(
        self,
        key: str,
        columns: Sequence[str] | None = None,
        data: Sequence[Sequence[Any]] | None = None,
        dataframe: Any = None,
        step: int | None = None,
    ) -> None:
        """Log a table as `key.csv`."""
        names, rows = as_table(key, columns, data, dataframe)
        self.experiment.log_table(f"{key}.csv", tabular_data=rows, headers=names, step=step)

    def log_text(self, key: str, text: str, step: int | None = None) -> None:
        """Log a text."""
        self.experiment.log_text(text, step=step, metadata={"key": key})

    def finalize(self, status: str) -> None:  # noqa: ARG002 - the experiment stays open
        """Send what is still held; the experiment stays open."""
        if self._experiment is not None:
            self._experiment.flush()
        self._sent.end_run()

    def run_state(self) -> dict[str, Any]:
        """Return the experiment's key."""
        return {"project": self._project, "key": self._key, "logged": self._sent.calls}

    def resume_run(self, state: dict[str, Any]) -> None:
        """Go on with the experiment of a checkpoint."""
        if state["project"] != self._project or (self._is_chosen and state["key"] != self._key):
            return
        with self._lock:
            if state["key"] != self._key:
                self._key, self._experiment = state["key"], None
                self._sent.forget()
            # what this process has sent since is not sent again; of another's nobody can be asked
            self._sent.resume(state["logged"])

    def _begin(self) -> Any:
        # it would wrap what it finds imported, and complain of what was imported before
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
