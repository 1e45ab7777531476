"""NeptuneLogger: log to a run of Neptune, online or offline."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from trainer_hooks._log import log
from trainer_hooks._options import STRING, check_options
from trainer_hooks.errors import OptionError
from trainer_hooks.loggers.conversion import as_dict, jsonable, plain_number, require_package
from trainer_hooks.loggers.online_services import AppendOnlyLogger, CheckpointUploads

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping, Sequence

_RULES = {"prefix": STRING, "project": STRING.or_none(), "name": STRING.or_none()}


class NeptuneLogger(AppendOnlyLogger):
    """Log metrics, parameters, images, tables, texts and checkpoints to a run of Neptune.

    The run is begun at the first write. It stays open after a training so that you can log to it
    yourself, until `logger.experiment.stop()` or the end of the process. A resumed run continues
    under the same `custom_run_id`; Neptune drops values of steps that it has.

    Args:
        api_key: the API token; by default `NEPTUNE_API_TOKEN`.
        project: the project, as `"workspace/name"`; by default `NEPTUNE_PROJECT`.
        name: the run's displayed name.
        run: a run that was begun already.
        log_model_checkpoints: whether to upload the checkpoints that are left at the end.
        prefix: the folder inside the run that everything is logged to.
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
        check_options("NeptuneLogger", _RULES, prefix=prefix, project=project, name=name)
        if run is not None and (neptune_run_kwargs or project or name):
            raise OptionError(
                "run of NeptuneLogger: it was begun already, so that nothing that begins one can "
                "be given beside it. Leave the other arguments out."
            )
        self.in_background = neptune_run_kwargs.get("mode") not in ("offline", "debug")
        self._options = dict(neptune_run_kwargs)
        chosen = self._options.pop("custom_run_id", None)
        super().__init__(
            project,
            # chosen here and not by Neptune: a checkpoint may hold the id before the first write
            chosen or token_hex(16),
            is_chosen=chosen is not None or run is not None,
            experiment=run,
        )
        self._api_key, self._name = api_key, name
        self._uploads = CheckpointUploads(bool(log_model_checkpoints), "NeptuneLogger")
        self._prefix = f"{prefix}/" if prefix else ""
        self._is_accepted: dict[str, bool] = {}

    @property
    def name(self) -> str | None:
        """Return the run's name."""
        return self._name

    @property
    def save_dir(self) -> str:
        """Return the folder in which Neptune keeps unsent data."""
        return str(Path.cwd() / ".neptune")

    # Neptune's own word for the experiment
    run = AppendOnlyLogger.experiment

    def run_state(self) -> dict[str, Any]:
        """Return the state of the run, with the names that were accepted or left out."""
        return {**super().run_state(), "is_accepted": dict(self._is_accepted)}

    def resume_run(self, state: dict[str, Any]) -> None:
        """Continue the run of a checkpoint, with the names that it has accepted or left out."""
        if self._takes_run(state):
            present = self._is_accepted if state[self._id_name] == self._id else {}
            # older checkpoints have no names
            self._is_accepted = {**state.get("is_accepted", {}), **present}
        super().resume_run(state)

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Log the metrics of one moment; calls without a `step` are numbered.

        In Neptune a slash makes a folder, so that of `val` and `val/loss` the later one is left
        out, with a warning.
        """
        run, position = self.experiment, self._calls if step is None else step
        for key, value in metrics.items():
            if self._is_unsent(key, position) and self._accepts(key):
                run[self._prefix + key].append(plain_number(value), step=position)
                self._sent[key] = position
        self._calls += 1

    def _accepts(self, name: str) -> bool:
        """Return whether Neptune can store a metric beside the others; warn once if it cannot."""
        if name not in self._is_accepted:
            parts = _parts(name)
            accepted = (other for other, is_accepted in self._is_accepted.items() if is_accepted)
            rival = next((other for other in accepted if _are_rivals(parts, _parts(other))), None)
            self._is_accepted[name] = bool(parts) and rival is None
            # not left to Neptune: its error would lose the metrics after this one, too
            if not self._is_accepted[name]:
                log.warning(
                    "NeptuneLogger leaves out the metric %r: a slash makes a folder in Neptune, "
                    "and %s. Give it another name.",
                    name,
                    "no name is left" if rival is None else f"{rival!r} and it cannot both exist",
                )
        return self._is_accepted[name]

    def log_hyperparams(self, params: Mapping[str, Any] | Namespace) -> None:
        """Log hyperparameters to the folder `hyperparams`; nested ones to folders inside it."""
        from neptune.utils import stringify_unsupported

        values = jsonable(as_dict(params))
        self.experiment[f"{self._prefix}hyperparams"] = stringify_unsupported(values)

    def _write_images(
        self, key: str, pixels: list[Any], step: int | None, captions: Sequence[str] | None
    ) -> None:
        """Log images to a series."""
        from neptune.types import File

        for index, array in enumerate(pixels):
            text = None if captions is None else captions[index]
            # fractions: of bytes Neptune guesses the range, and takes a dark image for fractions
            picture = File.as_image(array / 255)
            self.experiment[f"{self._prefix}{key}/{index}"].append(
                picture, step=step, description=text
            )

    def _write_table(
        self, key: str, names: list[str], rows: list[list[Any]], step: int | None
    ) -> None:
        """Log a table as a CSV file."""
        from neptune.types import File

        text = io.StringIO()
        csv.writer(text).writerows([names, *rows])
        name = key if step is None else f"{key}/step-{step}"
        file = File.from_content(text.getvalue(), extension="csv")
        self.experiment[self._prefix + name].upload(file)

    def log_text(self, key: str, text: str, step: int | None = None) -> None:
        """Log a text to a series."""
        self.experiment[self._prefix + key].append(text, step=step)

    def after_save_checkpoint(self, checkpoint_callback: Any) -> None:
        """Record the checkpoints to upload."""
        self._upload(self._uploads.after_save(checkpoint_callback))

    def finalize(self, status: str) -> None:
        """Upload the checkpoints that are left; the run stays open."""
        if status == "success":
            self._upload(self._uploads.at_end())
        # only the resumed run skips values: the next fit may begin at step 0 again
        self._sent_before = {}

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
            # waits, since retention may delete the file as soon as the next one is saved
            self.experiment[f"{self._prefix}model/checkpoints/{name}"].upload(path, wait=True)
            self._uploads.note(path)


def _parts(name: str) -> list[str]:
    """Return the folders and the name in a path, as Neptune reads it."""
    return [part for part in name.split("/") if part]


def _are_rivals(first: list[str], second: list[str]) -> bool:
    """Return whether two paths are the same, or one leads to a folder that holds the other."""
    length = min(len(first), len(second))
    return first[:length] == second[:length]
