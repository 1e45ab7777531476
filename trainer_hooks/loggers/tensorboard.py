"""TensorBoardLogger: everything that TensorBoard shows, in event files."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer_hooks.errors import OptionError
from trainer_hooks.loggers.event_files import MARK, mark, set_aside, sizes_in, truncate
from trainer_hooks.loggers.folder_logger import FolderLogger
from trainer_hooks.loggers.guard import is_mistake
from trainer_hooks.loggers.hparams import as_dict, flattened, plain_number, write_hparams
from trainer_hooks.loggers.media import (
    as_markdown,
    as_pixels,
    as_table,
    require_package,
    step_or_zero,
)
from trainer_hooks.loggers.run_folder import RunFolder, check_text

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Mapping, Sequence

    from torch import nn
    from torch.utils.tensorboard import SummaryWriter

__all__ = ["TensorBoardLogger"]

_FLUSH_EVERY = 10


class TensorBoardLogger(FolderLogger):
    """Write event files for TensorBoard to `save_dir/name/version_N`, and hyperparameters as JSON.

    torch's `SummaryWriter` does the writing; `experiment` is it, for what has no method here. It is
    made at the first write. Each image is a tag of its own, `key/0`, `key/1`...; tables and texts
    are found among the texts.

    A run that is resumed goes on in the same folder. What was written after the checkpoint is cut
    off, the whole file kept beside it without `tfevents` in its name, and a server that shows the
    run already is told to drop those steps.

    Args:
        save_dir: folder for all experiments.
        name: name of the experiment; an empty string or None leaves that level out.
        version: a number, or the whole name of the folder. Default: the next free number.
        log_graph: whether to write the model's graph as a fit begins, for which the model needs an
            `example_input_array`.
        default_hp_metric: whether to write `hp_metric` with the hyperparameters, without which
            TensorBoard does not list a run that has no other metric of that kind.
        prefix: put before each metric's name, with a dash.
        sub_dir: a folder inside the run's folder for the event files.
        **kwargs: for `SummaryWriter`: `comment`, `max_queue`, `flush_secs`, `filename_suffix`.

    Raises:
        OptionError: an argument breaks its rule, tensorboard is not installed, or the folder cannot
            be made.

    Example::

        trainer = Trainer(logger=TensorBoardLogger("logs", name="digits"))
    """

    def __init__(
        self,
        save_dir: str | os.PathLike[str],
        name: str | None = "trainer_logs",
        version: int | str | None = None,
        log_graph: bool = False,
        default_hp_metric: bool = True,
        prefix: str = "",
        sub_dir: str | os.PathLike[str] | None = None,
        **kwargs: Any,
    ) -> None:
        require_package("tensorboard", "tensorboard", "TensorBoardLogger")
        if name is not None:
            check_text("name", name, "TensorBoardLogger")
        check_text("prefix", prefix, "TensorBoardLogger")
        _check_options(sub_dir, kwargs)
        self.run_folder = RunFolder("TensorBoardLogger", save_dir, name, version, MARK, mark)
        self._name = name or ""
        self._log_graph = log_graph
        self._default_hp_metric = default_hp_metric
        self._prefix = f"{prefix}-" if prefix else ""
        self._sub_dir = None if sub_dir is None else os.fspath(sub_dir)
        self._options = kwargs
        self._writer: SummaryWriter | None = None
        self._unsure: list[Callable[[Any], Any]] = []
        self._sizes: dict[str, int] = {}
        self._logged = 0
        self._last_step = -1
        self._has_hparams = False
        self._purge_step = 0
        self._cut: dict[str, int] | None = None
        self._hparams: dict[str, Any] = {}

    @property
    def name(self) -> str:
        """Return the name of the experiment."""
        return self._name

    @property
    def root_dir(self) -> str:
        """Return the folder of the experiment's runs."""
        return str(Path(self.save_dir, self._name))

    @property
    def sub_dir(self) -> str | None:
        """Return the folder inside the run's folder."""
        return self._sub_dir

    @property
    def log_dir(self) -> str:
        """Return the folder of this run's event files; nothing is created."""
        return str(Path(super().log_dir, self._sub_dir or ""))

    @property
    def experiment(self) -> SummaryWriter:
        """Return the `SummaryWriter`, made at the first call."""
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            folder = self._claim()
            truncate(folder, self._sizes)
            purge = None if self._cut is None else self._purge_step
            writer = SummaryWriter(str(folder), purge_step=purge, **self._options)
            self._sizes = sizes_in(folder)
            for add in self._unsure:
                add(writer)
            self._writer, self._cut = writer, None
        return self._writer

    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Write scalars; without a `step` the calls are numbered."""
        place, now = self._place(self._logged if step is None else step), time.time()
        adds = []
        for key, value in metrics.items():
            tag = self._prefix + key
            if isinstance(value, dict):
                adds.append(methodcaller("add_scalars", tag, dict(value), place, now))
            else:
                adds.append(methodcaller("add_scalar", tag, plain_number(value), place, now))
        self._add(*adds)
        self._logged += 1

    def log_hyperparams(
        self,
        params: Mapping[str, Any] | Namespace,
        metrics: Any = None,
        step: int | None = None,
    ) -> None:
        """Write hyperparameters for TensorBoard's table of them, and to `hparams.json`.

        Args:
            params: names and values; nested ones get names with slashes.
            metrics: the metrics to show beside them, by name, or the value of `hp_metric`, which is
                -1 unless given.
            step: the place of these on the x axis; 0 unless given.
        """
        from torch.utils.tensorboard import summary

        hparams = {**self._hparams, **as_dict(params)}
        write_hparams(self.run_folder.claim(), hparams)
        if metrics is None:
            shown = {"hp_metric": -1.0} if self._default_hp_metric else {}
            is_new = not self._has_hparams
        else:
            shown = dict(metrics) if hasattr(metrics, "items") else {"hp_metric": metrics}
            is_new = True
        if shown:
            values = {
                name: value if isinstance(value, bool | int | float | str) else str(value)
                for name, value in flattened(hparams).items()
            }
            place, now = self._place(step), time.time()
            parts = summary.hparams(values, shown)  # type: ignore[no-untyped-call]
            adds = [_summary(part) for part in parts]
            if is_new:
                adds += [methodcaller("add_scalar", k, v, place, now) for k, v in shown.items()]
            self._add(*adds)
            self._has_hparams = True
        self._hparams = hparams

    def log_graph(self, model: nn.Module, input_array: Any = None) -> None:
        """Write the model's graph, if `log_graph=True`; its forward is run once.

        Raises:
            OptionError: there is no input for it.
        """
        if not self._log_graph:
            return
        if input_array is None:
            input_array = getattr(model, "example_input_array", None)
        if input_array is None:
            raise OptionError(
                "log_graph True of TensorBoardLogger: the model needs an input to be run with. Set "
                "its example_input_array, or leave log_graph out."
            )
        from trainer_hooks.loggers.graph import traced

        with traced(model, input_array) as (part, inputs):
            self._add(methodcaller("add_graph", part, inputs), flushes=True)

    def log_image(
        self,
        key: str,
        images: Sequence[Any],
        step: int | None = None,
        *,
        captions: Sequence[str] | None = None,  # noqa: ARG002 - TensorBoard has no place for them
        channels_last: bool = False,
    ) -> None:
        """Write images, each under a tag of its own; TensorBoard has no captions."""
        place, now = self._place(step), time.time()
        pixels = [as_pixels(image, key, channels_last=channels_last) for image in images]
        self._add(
            *(
                methodcaller("add_image", f"{self._prefix}{key}/{index}", array, place, now, "HWC")
                for index, array in enumerate(pixels)
            )
        )

    def log_table(
        self,
        key: str,
        columns: Sequence[str] | None = None,
        data: Sequence[Sequence[Any]] | None = None,
        dataframe: Any = None,
        step: int | None = None,
    ) -> None:
        """Write a table as a text in Markdown."""
        self.log_text(key, as_markdown(*as_table(key, columns, data, dataframe)), step)

    def log_text(self, key: str, text: str, step: int | None = None) -> None:
        """Write a text."""
        place = self._place(step)
        self._add(methodcaller("add_text", self._prefix + key, text, place, time.time()))

    def save(self) -> None:
        """Write out what is still held in memory; without anything, nothing is created."""
        if self._writer is not None or self._unsure:
            self._add(flushes=True)

    def finalize(self, status: str) -> None:
        """Close the event file; another one is begun if there is more to write."""
        super().finalize(status)
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def run_state(self) -> dict[str, Any]:
        """Return which folder, and how long its event files are."""
        self.save()
        return {
            **self.run_folder.state(),
            "sub_dir": self._sub_dir,
            "sizes": dict(self._sizes),
            "logged": self._logged,
            "last_step": self._last_step,
            "has_hparams": self._has_hparams,
        }

    def resume_run(self, state: dict[str, Any]) -> None:
        """Go on in the folder of a checkpoint, after what it knows of."""
        if state["sub_dir"] != self._sub_dir or not self.run_folder.resume(state):
            return
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        self._unsure = []
        self._sizes = self._cut = dict(state["sizes"])
        self._logged, self._last_step = state["logged"], state["last_step"]
        self._purge_step = self._last_step + 1
        self._has_hparams = state["has_hparams"]
        present = sizes_in(Path(self.log_dir))
        if present and any(present.get(name, -1) < size for name, size in self._cut.items()):
            self._cut, self._sizes = None, {}
            if not self.run_folder.is_chosen:
                self.run_folder.leave()

    def _place(self, step: int | None) -> int:
        """Return a place on the x axis, 0 without one, and note how far the run is."""
        place = step_or_zero(step)
        self._last_step = max(self._last_step, place)
        return place

    def _add(self, *adds: Callable[[Any], Any], flushes: bool = False) -> None:
        """Write all of it, or raise and have taken nothing.

        What may not have reached the disk is kept and written again if the writer fails, which
        cannot be used any more then.
        """
        try:
            writer = self.experiment
            for add in adds:
                add(writer)
            if flushes or len(self._unsure) + len(adds) >= _FLUSH_EVERY:
                writer.flush()
                self._sizes = sizes_in(Path(self.log_dir))
                self._unsure = []
            else:
                self._unsure.extend(adds)
        except Exception as error:
            if not is_mistake(error) and self._writer is not None:
                with suppress(Exception):  # it failed already, which is being told
                    self._writer.close()
                self._writer = None
            raise

    def _claim(self) -> Path:
        """Return the folder of the event files, without what a resumed run is to write again."""
        self.run_folder.claim()
        folder = Path(self.log_dir)
        folder.mkdir(parents=True, exist_ok=True)
        if self._cut is not None and self.run_folder.is_continued:
            for name, size in sizes_in(folder).items():
                if size > self._cut.get(name, 0):
                    set_aside(folder / name, self._cut.get(name))
        elif self._cut is not None:
            self._cut, self._sizes = None, {}  # the old folder is gone
        return folder


def _check_options(sub_dir: object, kwargs: Mapping[str, Any]) -> None:
    if sub_dir is not None and not isinstance(sub_dir, str | os.PathLike):
        raise OptionError(
            f"sub_dir {sub_dir!r} of TensorBoardLogger: must be a path. Give a folder's name."
        )
    known = ("comment", "max_queue", "flush_secs", "filename_suffix")
    for option in kwargs:
        if option not in known:
            raise OptionError(
                f"{option} of TensorBoardLogger: is no option of it, nor of SummaryWriter, which "
                f"takes {', '.join(known)}. Leave it out."
            )


def _summary(part: Any) -> Callable[[Any], Any]:
    return lambda writer: writer.file_writer.add_summary(part)
