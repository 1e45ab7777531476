"""NeptuneLogger: a run of Neptune, online or offline."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from secrets import token_hex
from threading import RLock
from typing import TYPE_CHECKING, Any

from trainer_hooks.errors import OptionError
from trainer_hooks.loggers.base import Logger
from trainer_hooks.loggers.hparams import as_dict, jsonable, plain_number
from trainer_hooks.loggers.media import as_pixels, as_table, require_package
from trainer_hooks.loggers.run_folder import check_text
from trainer_hooks.loggers.sent import Sent
from trainer_hooks.loggers.uploads import Uploads

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping, Sequence

__all__ = ["NeptuneLogger"]


class NeptuneLogger(Logger):
    """Write to a run of Neptune: metrics, parameters, images, tables, texts and checkpoints.

    The run is begun at the first write, and stays open after a training, for what you log
    yourself; `logger.experiment.stop()` ends it, and so does the end of the process. A run that is
    resumed goes on under the same `custom_run_id`; Neptune drops values of steps that it has.

    Args:
        api_key: by default `NEPTUNE_API_TOKEN`.
        project: the project, as `"workspace/name"`; by default `NEPTUNE_PROJECT`.
        name: the run's name, as it is shown.
        run: a run that was begun already.
        log_model_checkpoints: whether the checkpoints that are left at the end are uploaded.
        prefix: the folder in the run that everything goes to.
        **neptune_run_kwargs: for `neptune.init_run`: `mode`, `tags`, `custom_run_id`...

    Raises:
        OptionError: an argument breaks its rule, or neptune is not installed.

    Example::

        trainer = Trainer(logger=NeptuneLogger(project="me/digits", mode="offline"))
    """

    def __init__(
        self,
        *,
        api_key: str | None = None,
        project: str | None = None,
        name: str | None = None,
        run: Any = None,
        log_model_checkpoints: bool | None = True,
        prefix: str = "training",
        **neptune_run_kwargs: Any,
    ) -> None:
        require_package("neptune", "neptune", "NeptuneLogger")
        check_text("prefix", prefix, "NeptuneLogger")
        for argument, value in (("project", project), ("name", name)):
            if value is not None:
                check_text(argument, value, "NeptuneLogger")
        if run is not None and (neptune_run_kwargs or project or name):
            raise OptionError(
                "run of NeptuneLogger: it was begun already, so that nothing that begins one can "
                "be given beside it. Leave the other arguments out."
            )
        self.in_background = neptune_run_kwargs.get("mode") not in ("offline", "debug")
        self._options = dict(neptune_run_kwargs)
        chosen = self._options.pop("custom_run_id", None)
        self._is_chosen = chosen is not None or run is not None
        self._id = chosen or token_hex(16)
        self._api_key, self._project, self._name = api_key, project, name
        self._run = run
        self._uploads = Uploads(bool(log_model_checkpoints), "NeptuneLogger")
        self._prefix = f"{prefix}/" if prefix else ""
        self._sent = Sent()
        self._lock = RLock()

    @property
    def name(self) -> str | None:
        """Return the run's name."""
        return self._name

    @property
    def version(self) -> str:
        """Return the run's `custom_run_id`."""
        return self._id

    @property
    def save_dir(self) -> str:
        """Return the folder where Neptune keeps what is not sent yet."""
        return str(Path.cwd() / ".neptune")

    @property
    def log_dir(self) -> None:
        """Return None: Neptune gives a run no folder that others may write to."""
        return

    @property
    def experiment(self) -> Any:
        """Return the run, begun at the first call."""
        with self._lock:
            if self._run is None:
                self._run = self._begin()
            return self._run

    run = experiment

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Log the values of one moment; without a `step` the calls are numbered."""
        run, place = self.experiment, self._sent.calls if step is None else step
        for key, value in metrics.items():
            if self._sent.is_new(key, place):
                run[self._prefix + key].append(plain_number(value), step=place)
                self._sent.note(key, place)
        self._sent.calls += 1

    def log_hyperparams(self, params: Mapping[str, Any] | Namespace) -> None:
        """Log hyperparameters into the folder `hyperparams`; nested ones into folders there."""
        from neptune.utils import stringify_unsupported

        values = jsonable(as_dict(params))
        self.experiment[f"{self._prefix}hyperparams"] = stringify_unsupported(values)

    def log_image(
        self,
        key: str,
        images: Sequence[Any],
        step: int | None = None,
        *,
        captions: Sequence[str] | None = None,
        channels_last: bool = False,
    ) -> None:
        """Log images to a series."""
        from neptune.types import File

        pixels = [as_pixels(image, key, channels_last=channels_last) for image in images]
        for index, array in enumerate(pixels):
            text = None if captions is None else captions[index]
            picture = File.as_image(array / 255)
            self.experiment[f"{self._prefix}{key}/{index}"].append(
                picture, step=step, description=text
            )

    def log_table(
        self,
        key: str,
        columns: Sequence[str] | None = None,
        data: Sequence[Sequence[Any]] | None = None,
        dataframe: Any = None,
        step: int | None = None,
    ) -> None:
        """Log a table as a CSV file."""
        from neptune.types import File

        names, rows = as_table(key, columns, data, dataframe)
        text = io.StringIO()
        csv.writer(text).writerows([names, *rows])
        place = key if step is None else f"{key}/step-{step}"
        file = File.from_content(text.getvalue(), extension="csv")
        self.experiment[self._prefix + place].upload(file)

    def log_text(self, key: str, text: str, step: int | None = None) -> None:
        """Log a text to a series."""
        self.experiment[self._prefix + key].append(text, step=step)

    def after_save_checkpoint(self, checkpoint_callback: Any) -> None:
        """Note what there is to upload."""
        self._upload(self._uploads.after_save(checkpoint_callback))

    def finalize(self, status: str) -> None:
        """Upload the checkpoints that are left; the run stays open."""
        if status == "success":
            self._upload(self._uploads.at_end())
        self._sent.end_run()

    def run_state(self) -> dict[str, Any]:
        """Return the run's `custom_run_id`."""
        return {"project": self._project, "id": self._id, "logged": self._sent.calls}

    def resume_run(self, state: dict[str, Any]) -> None:
        """Go on with the run of a checkpoint."""
        if state["project"] != self._project or (self._is_chosen and state["id"] != self._id):
            return
        with self._lock:
            if state["id"] != self._id:
                self._id, self._run = state["id"], None
                self._sent.forget()
            # what this process has sent since is not sent again
            self._sent.resume(state["logged"])

    def _begin(self) -> Any:
        import neptune

        return neptune.init_run(
            project=self._project,
            api_token=self._api_key,
            name=self._name,
            custom_run_id=self._id,
            **self._options,
        )

    def _upload(self, files: list[tuple[str, list[str]]]) -> None:
        for path, _ in files:
            name = Path(path).stem
            self.experiment[f"{self._prefix}model/checkpoints/{name}"].upload(path, wait=True)
            self._uploads.note(path)
