"""TensorBoardLogger: write everything that TensorBoard shows to event files."""

from __future__ import annotations

import os
import shutil
import time
import warnings
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks._options import PATH, STRING, check_options
from trainer_hooks.errors import OptionError
from trainer_hooks.loggers.conversion import (
    ConvertingLogger,
    as_dict,
    as_markdown,
    flattened,
    plain_number,
    require_package,
    step_or_zero,
    write_hparams,
)
from trainer_hooks.loggers.guard import is_permanent_error
from trainer_hooks.loggers.run_folder import FolderLogger, RunFolder
from trainer_hooks.runtime import rng
from trainer_hooks.runtime.modes import evaluation_mode
from trainer_hooks.runtime.nested_tensors import move_to_device

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from torch import nn
    from torch.utils.tensorboard import SummaryWriter

_EVENTS = "tfevents"
# event files have the time and the host in their names: two processes would make two of them
_AFTER_RESUME, _EARLIER_RUN = "after_resume", "earlier_run"
"""Labels in the names of event files that were cut off or set aside."""
_MARK = ".tensorboard"
"""The name of the file that claims a folder for a TensorBoardLogger."""
_FLUSH_EVERY = 10
"""The number of events that are kept until the writer is known to have written them."""

_WRITER_OPTIONS = ("comment", "max_queue", "flush_secs", "filename_suffix")

_Row = tuple[int, dict[str, Any], float]
"""The step, the scalars and the wall time of one call of `log_metrics`."""

_RULES = {
    "name": STRING.or_none(),
    "prefix": STRING,
    "sub_dir": replace(PATH, cure="Give a folder's name.").or_none(),
}


class TensorBoardLogger(FolderLogger, ConvertingLogger):
    """Write event files for TensorBoard to `save_dir/name/version_N`, and hyperparameters as JSON.

    torch's `SummaryWriter` does the writing; `experiment` returns it, for methods that are missing
    here. It is made at the first write. Each image has its own tag, `key/0`, `key/1`...; tables and
    texts are shown among the texts.

    A resumed run continues in the same folder. Events after the checkpoint are cut off, and the
    whole file is kept beside it without `tfevents` in its name; a server that shows the run already
    is told to drop those steps.

    Args:
        save_dir: folder for all experiments.
        name: name of the experiment; an empty string or None leaves that level out.
        version: a number, or the whole name of the folder. Default: the next free number.
        log_graph: whether to write the model's graph when a fit begins, for which the model needs
            an `example_input_array`.
        default_hp_metric: whether to write `hp_metric` with the hyperparameters. TensorBoard does
            not list a run without any metric of that kind.
        prefix: text before each metric's name, joined by a dash.
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
        check_options("TensorBoardLogger", _RULES, name=name, prefix=prefix, sub_dir=sub_dir)
        for option in kwargs:
            if option not in _WRITER_OPTIONS:
                raise OptionError(
                    f"{option} of TensorBoardLogger: is no option of it, nor of SummaryWriter, "
                    f"which takes {', '.join(_WRITER_OPTIONS)}. Leave it out."
                )
        self.run_folder = RunFolder("TensorBoardLogger", save_dir, name, version, _MARK)
        self._name = name or ""
        self._log_graph = log_graph
        self._default_hp_metric = default_hp_metric
        self._prefix = f"{prefix}-" if prefix else ""
        self._sub_dir = None if sub_dir is None else os.fspath(sub_dir)
        self._options = kwargs
        self._writer: SummaryWriter | None = None
        self._unconfirmed: list[Callable[[Any], Any]] = []
        self._unconfirmed_rows: list[_Row] = []
        self._sizes: dict[str, int] = {}
        self._logged = 0
        self._last_step = -1
        self._has_hparams = False
        self._purge_step = 0
        self._cut_label = _AFTER_RESUME
        self._cut: dict[str, int] | None = None
        self._hparams: dict[str, Any] = {}

    @property
    def name(self) -> str:
        """Return the name of the experiment."""
        return self._name

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
        """Return the `SummaryWriter`, which is made by the first call."""
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            folder = self._claim()
            # drops the incomplete events of a writer that failed
            for name, size in self._sizes.items():
                path = folder / name
                if path.is_file() and path.stat().st_size > size:
                    os.truncate(path, size)
            purge = None if self._cut is None else self._purge_step
            writer = SummaryWriter(str(folder), purge_step=purge, **self._options)
            self._sizes = _sizes_in(folder)
            for add in self._unconfirmed:
                add(writer)
            # last: if adding the events failed, the next call makes another writer
            self._writer, self._cut = writer, None
        return self._writer

    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Write scalars; calls without a `step` are numbered."""
        # the wall time of the call is kept, for the case that the event is written again
        position, now = self._position(self._logged if step is None else step), time.time()
        row = {
            key: dict(value) if isinstance(value, dict) else plain_number(value)
            for key, value in metrics.items()
        }
        # before they are added, which may confirm them
        self._unconfirmed_rows.append((position, row, now))
        try:
            self._add(*self._scalar_adds(position, row, now))
        except BaseException:
            self._unconfirmed_rows.pop()  # the caller repeats the call that failed
            raise
        self._logged += 1

    def log_hyperparams(
        self,
        params: Mapping[str, Any] | Namespace,
        metrics: Any = None,
        step: int | None = None,
    ) -> None:
        """Write hyperparameters to TensorBoard's HParams tab and to `hparams.json` in `log_dir`.

        Args:
            params: values by name; nested ones get names with slashes.
            metrics: the metrics to show beside them by name, or the value of `hp_metric`, -1 by
                default.
            step: the position of these metrics on the x axis; 0 by default.
        """
        from torch.utils.tensorboard import summary

        hparams = {**self._hparams, **as_dict(params)}
        self.run_folder.claim()
        folder = Path(self.log_dir)
        folder.mkdir(exist_ok=True, parents=True)
        write_hparams(folder, hparams)
        if metrics is None:
            shown = {"hp_metric": -1.0} if self._default_hp_metric else {}
            # once: each call would add another point to the curve of `hp_metric`
            is_new = not self._has_hparams
        else:
            shown = dict(metrics) if hasattr(metrics, "items") else {"hp_metric": metrics}
            is_new = True
        if shown:
            values = {
                name: value if isinstance(value, bool | int | float | str) else str(value)
                for name, value in flattened(hparams).items()
            }
            position, now = self._position(step), time.time()
            # not SummaryWriter.add_hparams, which writes to a run of its own in a subfolder
            parts = summary.hparams(values, shown)  # type: ignore[no-untyped-call]
            adds: list[Callable[[Any], Any]] = [
                # `part` as a default: the lambdas of a loop would all see the last one
                lambda writer, part=part: writer.file_writer.add_summary(part)  # type: ignore[misc]
                for part in parts
            ]
            if is_new:
                adds += [methodcaller("add_scalar", k, v, position, now) for k, v in shown.items()]
            self._add(*adds)
            self._has_hparams = True
        self._hparams = hparams

    def log_graph(self, model: nn.Module, input_array: Any = None) -> None:
        """Write the model's graph if `log_graph=True`; this runs its forward once.

        Raises:
            OptionError: there is no input for the forward.
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

        with _traced(model, input_array) as (part, inputs):
            # flushed at once: repeated later, it would run the model outside of `_traced`
            self._add(methodcaller("add_graph", part, inputs), flushes=True)

    def _write_images(
        self,
        key: str,
        pixels: list[Any],
        step: int | None,
        captions: Sequence[str] | None,  # noqa: ARG002 - TensorBoard has no place for them
    ) -> None:
        """Write images, each under its own tag; TensorBoard has no captions."""
        position, now = self._position(step), time.time()
        self._add(
            *(
                methodcaller(
                    "add_image", f"{self._prefix}{key}/{index}", array, position, now, "HWC"
                )
                for index, array in enumerate(pixels)
            )
        )

    def _write_table(
        self, key: str, names: list[str], rows: list[list[Any]], step: int | None
    ) -> None:
        """Write a table as a text in Markdown."""
        self.log_text(key, as_markdown(names, rows), step)

    def log_text(self, key: str, text: str, step: int | None = None) -> None:
        """Write a text."""
        position = self._position(step)
        self._add(methodcaller("add_text", self._prefix + key, text, position, time.time()))

    def save(self) -> None:
        """Write out everything that is held in memory; without anything, nothing is created."""
        if self._writer is not None or self._unconfirmed:
            self._add(flushes=True)

    def finalize(self, status: str) -> None:
        """Close the event file; a later write begins another one."""
        super().finalize(status)
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def run_state(self) -> dict[str, Any]:
        """Return the folder, the sizes of its event files, and the unwritten rows."""
        # first: only a flush makes the sizes of the files those of what was logged; on a full disk
        # the checkpoint holds the rows, and they are written after the resume
        with suppress(OSError):
            self.save()
        return {
            **self.run_folder.state(),
            "sub_dir": self._sub_dir,
            "sizes": dict(self._sizes),
            "logged": self._logged,
            "last_step": self._last_step,
            "has_hparams": self._has_hparams,
            "unwritten": [list(row) for row in self._unconfirmed_rows],
        }

    def owns_run(self, state: dict[str, Any]) -> bool:
        """Return whether the folder of a checkpoint is this logger's."""
        return bool(state["sub_dir"] == self._sub_dir) and super().owns_run(state)

    def resume_run(self, state: dict[str, Any]) -> None:
        """Continue in the folder of a checkpoint, at the file sizes that the checkpoint holds."""
        if not self.owns_run(state):
            return
        self.run_folder.resume(state)
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        self._unconfirmed_rows = [(*row,) for row in state["unwritten"]]
        self._unconfirmed = [
            add for row in self._unconfirmed_rows for add in self._scalar_adds(*row)
        ]
        self._sizes = self._cut = dict(state["sizes"])
        self._cut_label = _AFTER_RESUME
        self._logged, self._last_step = state["logged"], state["last_step"]
        self._purge_step = self._last_step + 1
        self._has_hparams = state["has_hparams"]
        present = _sizes_in(Path(self.log_dir))
        # files that are shorter than at the checkpoint are another run's, and are left alone
        if present and any(present.get(name, -1) < size for name, size in self._cut.items()):
            self._cut, self._sizes = None, {}
            if not self.run_folder.is_chosen:
                self.run_folder.start_new()

    def set_earlier_run_aside(self) -> None:
        """Rename the event files of an earlier run, at the next write."""
        if self._writer is None and self._cut is None and not self._sizes:
            self._cut, self._cut_label, self._purge_step = {}, _EARLIER_RUN, 0

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes for a copy or a pickle, which begins another event file."""
        state = super().__getstate__()
        if self._writer is not None:
            # the writer goes on: what it was given is not written twice, nor its file cut by a copy
            state |= {"_writer": None, "_unconfirmed": [], "_unconfirmed_rows": [], "_sizes": {}}
        return state

    def unwritten_steps(self) -> list[int]:
        """Return the step of each row that may not have reached the disk."""
        return [step for step, _, _ in self._unconfirmed_rows]

    def _scalar_adds(
        self, step: int, row: Mapping[str, Any], now: float
    ) -> list[Callable[[Any], Any]]:
        """Return the calls of a `SummaryWriter` that write a row of scalars."""
        return [
            methodcaller(
                "add_scalars" if isinstance(value, dict) else "add_scalar",
                self._prefix + key, value, step, now,
            )
            for key, value in row.items()
        ]  # fmt: skip

    def _position(self, step: int | None) -> int:
        """Return a position on the x axis, 0 for None, and record the highest one."""
        position = step_or_zero(step)
        self._last_step = max(self._last_step, position)
        return position

    def _add(self, *adds: Callable[[Any], Any], flushes: bool = False) -> None:
        """Write all of these events, or raise and have stored none of them.

        Events that may not have reached the disk are kept. If the writer fails it cannot be used
        any more, and a new one writes them again.
        """
        try:
            writer = self.experiment
            for add in adds:
                add(writer)
            # a flush after each event would be slow, and none would keep all events in memory
            if flushes or len(self._unconfirmed) + len(adds) >= _FLUSH_EVERY:
                # the writer's own thread writes: its error shows here, or in a later event
                writer.flush()
                self._sizes = _sizes_in(Path(self.log_dir))
                self._unconfirmed, self._unconfirmed_rows = [], []
            else:
                self._unconfirmed.extend(adds)
        except Exception as error:
            if not is_permanent_error(error) and self._writer is not None:
                with suppress(Exception):  # the first error is the one to raise
                    self._writer.close()
                self._writer = None
            raise

    def _claim(self) -> Path:
        """Return the folder of the event files, which a resume has cut at the checkpoint."""
        self.run_folder.claim()
        folder = Path(self.log_dir)
        folder.mkdir(parents=True, exist_ok=True)
        if self._cut is not None and self.run_folder.is_continued:
            for name, size in _sizes_in(folder).items():
                if size > self._cut.get(name, 0):
                    _cut_and_keep_whole(folder / name, self._cut.get(name), self._cut_label)
        elif self._cut is not None:
            # the folder of the checkpoint is gone: nothing is cut
            self._cut, self._sizes = None, {}
        return folder


def _sizes_in(folder: Path) -> dict[str, int]:
    """Return the sizes in bytes of a folder's event files by name."""
    return {path.name: path.stat().st_size for path in folder.glob(f"*{_EVENTS}*")}


def _cut_and_keep_whole(path: Path, size: int | None, label: str) -> None:
    """Keep the first `size` bytes of an event file, and the whole file under another name."""
    # TensorBoard reads only files with `tfevents` in their names
    names = (path.name.replace(_EVENTS, f"{label}_{number}") for number in count())
    whole = next(candidate for candidate in map(path.with_name, names) if not candidate.exists())
    if size is not None:
        shutil.copyfile(path, whole)
        os.truncate(path, size)
    else:
        path.replace(whole)


@contextmanager
def _traced(model: torch.nn.Module, inputs: Any) -> Iterator[tuple[torch.nn.Module, Any]]:
    """Yield a model in evaluation mode and an input on its device; restore the model then.

    In evaluation mode the forward moves no running mean, and the random state is restored too.
    """
    kind = type(model)
    # torch.jit reads all that `dir` lists, and a property may need a run that is not there
    names = [name for name in dir(model) if not isinstance(getattr(kind, name, None), property)]
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    with rng.isolated(), evaluation_mode(model), warnings.catch_warnings():
        # add_graph uses torch.jit, which warns; a user cannot change that
        for category in (DeprecationWarning, FutureWarning):
            warnings.filterwarnings("ignore", r".*torch\.jit", category)
        try:
            model.__class__ = type(kind.__name__, (kind,), {"__dir__": lambda _: names})
            yield model, move_to_device(inputs, device)
        finally:
            model.__class__ = kind
