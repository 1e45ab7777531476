"""WandbLogger: log to a run of Weights & Biases, online or offline."""

from __future__ import annotations

import json
import os
import struct
from array import array
from pathlib import Path
from secrets import token_hex
from threading import RLock
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from trainer_hooks._options import FOLDER, STRING, Rule, check_options
from trainer_hooks.errors import OptionError
from trainer_hooks.loggers.conversion import (
    ConvertingLogger,
    as_dict,
    as_pixels,
    jsonable,
    plain_number,
    require_package,
)
from trainer_hooks.loggers.online_services import CheckpointUploads, RecordedSteps

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator, Mapping, Sequence

    from torch import nn

_BLOCK = 32768
# `:W&B`, a magic number and a version
_FILE_HEADER = 7
_RECORD_HEADER = struct.Struct("<IHB")  # checksum, length, part
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_STEP = "trainer/global_step"
_RULES = {
    "prefix": STRING,
    "name": STRING.or_none(),
    "version": STRING.or_none(),
    "id": STRING.or_none(),
    "project": STRING.or_none(),
    "checkpoint_name": STRING.or_none(),
    "add_file_policy": Rule(
        "'mutable' or 'immutable'",
        lambda value: value in ("mutable", "immutable"),
        "Choose one of them.",
    ),
    "save_dir": FOLDER,
}
_begun: set[str] = set()
"""The ids of the runs that loggers have begun: only other open runs are the user's own."""


class WandbLogger(ConvertingLogger):
    """Log metrics, images, tables, texts and checkpoints to a run of Weights & Biases.

    The run is begun at the first write, unless `wandb.init` has begun one already. The x axis is
    `trainer/global_step`. The run stays open after a training so that you can log to it yourself,
    until `wandb.finish()` or the end of the process. A resumed run continues under the same id;
    metrics that it holds for a step already, according to the files in its folder, are not logged
    again.

    Args:
        name: the run's displayed name.
        save_dir: the folder that holds the folder `wandb`.
        version: the run's id, by which it can be found again; the same as `id`.
        offline: write to this machine only; `wandb sync` sends the run later.
        dir: the same as `save_dir`, and wins over it.
        id: the run's id.
        anonymous: whether a run without an account may be anonymous.
        project: the project; by default `WANDB_PROJECT`, and without that `trainer_logs`.
        log_model: whether checkpoints become artifacts: True for those that are left at the end,
            `"all"` for each as it is saved.
        experiment: a run that was begun already.
        prefix: text before each metric's name, joined by a dash.
        checkpoint_name: the artifact's name; by default `model-` and the run's id.
        add_file_policy: `"mutable"` copies a checkpoint before it is sent, `"immutable"` does not.
        **kwargs: for `wandb.init`: `entity`, `tags`, `group`, `notes`...

    Raises:
        OptionError: an argument breaks its rule, or wandb is not installed.

    Example::

        trainer = Trainer(logger=WandbLogger(project="digits", offline=True))
    """

    DEFAULT_PROJECT: ClassVar[str] = "trainer_logs"
    _connections = ("_run",)
    """The project where neither the argument nor the environment names one."""

    def __init__(
        self,
        name: str | None = None,
        save_dir: str | os.PathLike[str] = ".",
        version: str | None = None,
        offline: bool = False,
        dir: str | os.PathLike[str] | None = None,  # noqa: A002 - the name that others gave it
        id: str | None = None,  # noqa: A002
        anonymous: bool | None = None,
        project: str | None = None,
        log_model: bool | str = False,
        experiment: Any = None,
        prefix: str = "",
        checkpoint_name: str | None = None,
        add_file_policy: Literal["mutable", "immutable"] = "mutable",
        **kwargs: Any,
    ) -> None:
        require_package("wandb", "wandb", "WandbLogger")
        folder = save_dir if dir is None else dir
        check_options(
            "WandbLogger",
            _RULES,
            prefix=prefix,
            name=name,
            version=version,
            id=id,
            project=project,
            checkpoint_name=checkpoint_name,
            add_file_policy=add_file_policy,
            save_dir=folder,
        )
        self.in_background = not offline
        self._uploads = CheckpointUploads(log_model, "WandbLogger")
        self._run = experiment
        self._save_dir = os.fspath(folder)
        self._project = project or os.environ.get("WANDB_PROJECT") or self.DEFAULT_PROJECT
        chosen = version or id or os.environ.get("WANDB_RUN_ID")
        self._is_chosen = chosen is not None or experiment is not None
        # chosen here and not by wandb: a checkpoint may hold the id before the first write
        self._id = experiment.id if experiment is not None else chosen or token_hex(4)
        self._prefix = f"{prefix}-" if prefix else ""
        self._checkpoint_name = checkpoint_name
        self._policy = add_file_policy
        # "allow" begins a run of this id, or continues it
        self._options = {"name": name, "resume": "allow", **kwargs}
        if offline:
            self._options["mode"] = "offline"
        if anonymous is not None:
            self._options["anonymous"] = "allow" if anonymous else "never"
        self._is_resumed = False
        self._written = RecordedSteps()
        self._logged_steps: dict[str, array[int]] = {}
        self._logged = 0
        # the training may read `experiment` while the guard's thread logs
        self._lock = RLock()

    @property
    def name(self) -> str:
        """Return the project."""
        return self._project

    @property
    def is_version_chosen(self) -> bool:
        """Return whether the user chose the id."""
        return self._is_chosen

    @property
    def version(self) -> str:
        """Return the run's id."""
        return self._id

    @property
    def save_dir(self) -> str:
        """Return the folder that holds the folder `wandb`."""
        return self._save_dir

    @property
    def log_dir(self) -> str:
        """Return a folder for files of the run, such as checkpoints; nothing is created."""
        return str(Path(self._save_dir, self._project, self._id))

    @property
    def experiment(self) -> Any:
        """Return the run, which is begun by the first call."""
        with self._lock:
            if self._is_resumed:
                self._is_resumed = False
                rows = rows_of_run(Path(self._save_dir, "wandb"), self._id)
                there = ((key, row[_STEP]) for row in rows if _STEP in row for key in row)
                # values of this process may not have reached the file yet
                here = ((key, step) for key, steps in self._logged_steps.items() for step in steps)
                self._written = RecordedSteps((*there, *here))
            if self._run is None:
                self._run = self._begin()
            return self._run

    def watch(
        self, model: nn.Module, log: str | None = "gradients", log_freq: int = 100,
        log_graph: bool = True,
    ) -> None:  # fmt: skip
        """Log histograms of a model's gradients or parameters, as `wandb.Run.watch` does.

        Args:
            model: the model.
            log: `"gradients"`, `"parameters"`, `"all"` or None.
            log_freq: every how many batches.
            log_graph: whether to log the model's graph.
        """
        self.experiment.watch(model, log=log, log_freq=log_freq, log_graph=log_graph)

    def unwatch(self, model: nn.Module) -> None:
        """Undo `watch`."""
        self.experiment.unwatch(model)

    def use_artifact(self, artifact: Any, artifact_type: str | None = None) -> Any:
        """Record that the run uses an artifact, and return the artifact."""
        return self.experiment.use_artifact(artifact, type=artifact_type)

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Log the metrics of one moment; calls without a `step` are numbered."""
        run, position = self.experiment, self._logged if step is None else step
        named = {self._prefix + key: plain_number(value) for key, value in metrics.items()}
        left = self._written.without(named, position)
        if left:
            # not as wandb's own `step`, which drops values of a step below the last one
            run.log({**left, _STEP: position})
            for key in left:
                self._logged_steps.setdefault(key, array("q")).append(position)
        self._logged += 1

    def log_hyperparams(self, params: Mapping[str, Any] | Namespace) -> None:
        """Write hyperparameters to the run's config."""
        # wandb refuses another value for a known name unless it is told to allow it
        self.experiment.config.update(jsonable(as_dict(params)), allow_val_change=True)

    def _write_images(
        self, key: str, pixels: list[Any], step: int | None, captions: Sequence[str] | None
    ) -> None:
        """Log images with their captions."""
        import wandb

        texts = [None] * len(pixels) if captions is None else list(captions)
        if len(texts) != len(pixels):
            raise OptionError(
                f"captions of the images logged as {key!r}: there are {len(texts)} for "
                f"{len(pixels)} images. Give one for each, or None."
            )
        run = self.experiment
        pairs = zip(pixels, texts, strict=True)
        shown = [wandb.Image(array, caption=text) for array, text in pairs]
        self._log_medium(run, key, shown, step)

    def _write_table(
        self, key: str, names: list[str], rows: list[list[Any]], step: int | None
    ) -> None:
        """Log a table."""
        import wandb

        # wandb raises an error for a column of several types unless it is told to allow them
        table = wandb.Table(columns=list[str | int](names), data=rows, allow_mixed_types=True)
        self._log_medium(self.experiment, key, table, step)

    def log_text(
        self,
        key: str,
        text: str | None = None,
        step: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        data: Sequence[Sequence[Any]] | None = None,
        dataframe: Any = None,
    ) -> None:
        """Log a text as a table of one cell, or texts as a table.

        Args:
            key: the name to store it under.
            text: the text; None for texts as a table.
            step: its position on the x axis.
            columns: the names of the columns.
            data: the rows.
            dataframe: a table of pandas, in place of both.
        """
        if text is not None:
            columns, data = ["text"], [[text]]
        self.log_table(key, columns, data, dataframe, step)

    def log_image(
        self,
        key: str,
        images: Sequence[Any],
        step: int | None = None,
        *,
        captions: Sequence[str] | None = None,
        channels_last: bool = False,
        **kwargs: Sequence[Any],
    ) -> None:
        """Log images; see `Logger.log_image`.

        Args:
            key: the name to store them under.
            images: the images.
            step: their position on the x axis.
            captions: a caption for each image.
            channels_last: whether the last dimension is the colour.
            kwargs: arguments of `wandb.Image`, each a list with a value for each image, such as
                `caption`, `masks` and `boxes`.
        """
        if not kwargs:
            super().log_image(key, images, step, captions=captions, channels_last=channels_last)
            return
        # a path or an image of PIL is wandb's to read
        pixels = [
            as_pixels(image, key, channels_last=channels_last) if hasattr(image, "ndim") else image
            for image in images
        ]
        named = {} if captions is None else {"caption": captions}
        self._log_media("Image", key, pixels, step, {**named, **kwargs})

    def log_audio(
        self, key: str, audios: Sequence[Any], step: int | None = None, **kwargs: Sequence[Any]
    ) -> None:
        """Log sounds: paths or arrays.

        Args:
            key: the name to store them under.
            audios: the sounds.
            step: their position on the x axis.
            kwargs: arguments of `wandb.Audio`, each a list with a value for each sound, such as
                `caption` and `sample_rate`.
        """
        self._log_media("Audio", key, audios, step, kwargs)

    def log_video(
        self, key: str, videos: Sequence[Any], step: int | None = None, **kwargs: Sequence[Any]
    ) -> None:
        """Log videos: paths or arrays.

        Args:
            key: the name to store them under.
            videos: the videos.
            step: their position on the x axis.
            kwargs: arguments of `wandb.Video`, each a list with a value for each video, such as
                `caption`, `fps` and `format`.
        """
        self._log_media("Video", key, videos, step, kwargs)

    @staticmethod
    def download_artifact(
        artifact: str,
        save_dir: str | os.PathLike[str] | None = None,
        artifact_type: str | None = None,
        use_artifact: bool | None = True,
    ) -> str:
        """Download an artifact, and return the folder that holds it.

        Args:
            artifact: its name, as `"project/name:version"`.
            save_dir: the folder; wandb's own unless given.
            artifact_type: its type.
            use_artifact: whether the open run, if there is one, records that it uses it.
        """
        import wandb

        if wandb.run is not None and use_artifact:
            held: Any = wandb.run.use_artifact(artifact)
        else:
            held = wandb.Api().artifact(artifact, type=artifact_type)
        return str(held.download(root=None if save_dir is None else os.fspath(save_dir)))

    def after_save_checkpoint(self, checkpoint_callback: Any) -> None:
        """Log new checkpoints as artifacts, if `log_model="all"`."""
        self._upload(self._uploads.after_save(checkpoint_callback))

    def finalize(self, status: str) -> None:
        """Log the checkpoints that are left, if `log_model=True`; the run stays open."""
        if status == "success":
            self._upload(self._uploads.at_end())
        # only the resumed run skips values: the next fit may begin at step 0 again
        self._written = RecordedSteps()

    def run_state(self) -> dict[str, Any]:
        """Return the run's id."""
        return {"project": self._project, "id": self._id, "logged": self._logged}

    def owns_run(self, state: dict[str, Any]) -> bool:
        """Return whether the run of a checkpoint is of this project, and not another chosen one."""
        is_free = not self._is_chosen or state["id"] == self._id
        return bool(state["project"] == self._project) and is_free

    def resume_run(self, state: dict[str, Any]) -> None:
        """Continue the run of a checkpoint."""
        if not self.owns_run(state):
            return
        with self._lock:
            if state["id"] != self._id:
                self._id, self._run, self._logged_steps = state["id"], None, {}
            self._logged, self._is_resumed = state["logged"], True

    def _begin(self) -> Any:
        import wandb

        open_run = wandb.run
        # a run that the user has begun is used, one that another logger has begun is not
        if open_run is not None and open_run.id not in _begun:
            self._id = open_run.id
            return open_run
        options = dict(self._options)
        if open_run is not None:  # the run of another logger, which must stay open
            options.setdefault("reinit", "create_new")
        Path(self._save_dir).mkdir(parents=True, exist_ok=True)
        run = wandb.init(project=self._project, dir=self._save_dir, id=self._id, **options)
        _begun.add(run.id)
        # wandb's own step counts the calls of `log`: charts are drawn over the trainer's step
        run.define_metric(_STEP)
        # step_sync: rows that users log without a step get the last one
        run.define_metric("*", step_metric=_STEP, step_sync=True)
        return run

    def _log_medium(self, run: Any, key: str, value: Any, step: int | None) -> None:
        if step is None:
            run.log({key: value})
        elif self._written.without({key: 0.0}, step):
            run.log({key: value, _STEP: step})

    def _log_media(
        self,
        kind: str,
        key: str,
        items: Sequence[Any],
        step: int | None,
        arguments: Mapping[str, Sequence[Any]],
    ) -> None:
        """Log objects of a class of wandb.

        Args:
            kind: the class.
            key: the name to store them under.
            items: the first argument of each object.
            step: their position on the x axis.
            arguments: further arguments, each with a value for each object.

        Raises:
            OptionError: an argument has too many or too few values.
        """
        import wandb

        if isinstance(items, str) or not isinstance(items, list | tuple):
            raise OptionError(
                f"{key!r} was logged with {type(items).__qualname__}: it must be a list, with an "
                f"item for each wandb.{kind}."
            )
        for name, values in arguments.items():
            if len(values) != len(items):
                raise OptionError(
                    f"{name} of {key!r}: there are {len(values)} for {len(items)} items. Give one "
                    "for each."
                )
        make = getattr(wandb, kind)
        media = [
            make(item, **{name: values[index] for name, values in arguments.items()})
            for index, item in enumerate(items)
        ]
        self._log_medium(self.experiment, key, media, step)

    def _upload(self, files: list[tuple[str, list[str]]]) -> None:
        import wandb

        for path, aliases in files:
            run = self.experiment
            name = self._checkpoint_name or f"model-{run.id}"
            artifact = wandb.Artifact(name=name, type="model", metadata={"file": Path(path).name})
            artifact.add_file(path, name="model.ckpt", policy=self._policy)
            run.log_artifact(artifact, aliases=aliases)
            self._uploads.note(path)


def rows_of_run(folder: Path, run_id: str) -> Iterator[dict[str, Any]]:
    """Yield the history rows of a run from wandb's local files, those of its first process first.

    Args:
        folder: the `wandb` folder.
        run_id: the run's id.
    """
    from wandb.proto.wandb_internal_pb2 import Record  # type: ignore[attr-defined]

    for path in sorted(folder.glob(f"*run-*-{run_id}/run-{run_id}.wandb")):
        for content in _records(path.read_bytes()):
            record = Record.FromString(content)
            if record.WhichOneof("record_type") != "history":
                continue
            row: dict[str, Any] = {}
            for item in record.history.item:
                # a value of several parts, such as an image, becomes a dict
                value = json.loads(item.value_json)
                first, *below = item.nested_key or [item.key]
                if below:
                    row.setdefault(first, {})[".".join(below)] = value
                else:
                    row[first] = value
            yield row


def _records(content: bytes) -> Iterator[bytes]:
    """Yield the records of a file; an incomplete one at the end is left out.

    The format is that of LevelDB's log: blocks of 32 KiB, in which a record has one part, or
    several parts in consecutive blocks.
    """
    # wandb no longer ships a reader for its files in Python
    offset, parts = _FILE_HEADER, b""
    while offset + _RECORD_HEADER.size <= len(content):
        left = _BLOCK - offset % _BLOCK
        # too short for a header: LevelDB fills the end of the block with zeros
        if left < _RECORD_HEADER.size:
            offset += left
            continue
        _, length, part = _RECORD_HEADER.unpack_from(content, offset)
        offset += _RECORD_HEADER.size
        piece = content[offset : offset + length]
        offset += length
        if part not in (_WHOLE, _FIRST, _MIDDLE, _LAST) or len(piece) < length:
            return
        parts = piece if part in (_WHOLE, _FIRST) else parts + piece
        if part in (_WHOLE, _LAST):
            yield parts
