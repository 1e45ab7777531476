"""CSVLogger: metrics in a CSV file and hyperparameters in a JSON file."""

from __future__ import annotations

import csv
import json
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer_hooks._files import replace_file
from trainer_hooks._log import warn
from trainer_hooks.errors import OptionError, TrainerHooksWarning
from trainer_hooks.loggers.base import Logger
from trainer_hooks.loggers.files import STEP, continue_csv, create_csv, csv_writer

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence
    from typing import TextIO

__all__ = ["CSVLogger"]

_METRICS = "metrics.csv"
_HPARAMS = "hparams.json"
_VERSION = re.compile(r"version_(\d+)")

_Row = tuple[int, dict[str, float]]


class CSVLogger(Logger):
    """Write metrics to `save_dir/name/version_N/metrics.csv`, one row a call.

    The folder is made at the first write, and no two loggers are ever given the same number. Rows
    are collected in memory and written every `flush_logs_every_n_steps` steps and at the end of a
    run; what was written survives a killed process. A metric that appears late becomes a new
    column. With a `version` of your own, rows are added to the file that is there.

    Args:
        save_dir: folder for all experiments.
        name: name of the experiment; an empty string leaves that level out.
        version: a number, or the whole name of the folder. Default: the next free number.
        prefix: put before each metric's name, with a dash.
        flush_logs_every_n_steps: how many steps, or rows, may be lost if the process is killed.

    Raises:
        OptionError: an argument breaks its rule, or the folder cannot be made.

    Example::

        trainer = Trainer(logger=CSVLogger("logs", name="digits"))
    """

    def __init__(
        self,
        save_dir: str | os.PathLike[str],
        name: str = "trainer_logs",
        version: int | str | None = None,
        prefix: str = "",
        flush_logs_every_n_steps: int = 100,
    ) -> None:
        _check(save_dir, name, version, prefix, flush_logs_every_n_steps)
        self._save_dir = os.fspath(save_dir)
        self._name = name
        self._version = version
        self._is_version_chosen = version is not None
        self._prefix = f"{prefix}-" if prefix else ""
        self._flush_every = flush_logs_every_n_steps
        self._flush_at = flush_logs_every_n_steps - 1
        self._folder: Path | None = None
        self._columns: dict[str, None] = {}
        self._rows: list[_Row] = []
        self._logged = 0
        self._hparams: dict[str, Any] = {}

    @property
    def name(self) -> str:
        """Return the name of the experiment."""
        return self._name

    @property
    def version(self) -> int | str:
        """Return the number of this run, or the name that was given; nothing is created."""
        if self._version is None:
            self._version = _next_version(self._root)
        return self._version

    @property
    def save_dir(self) -> str:
        """Return the folder for all experiments."""
        return self._save_dir

    @property
    def log_dir(self) -> str:
        """Return the folder of this run; nothing is created."""
        return str(self._folder_of(self.version))

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Take one row; without a `step` the rows are numbered."""
        row = dict(metrics)
        for value in row.values():
            if type(value) is not float and type(value) is not int:
                row = {key: _number(value) for key, value in row.items()}
                break
        if step is None:
            step = self._logged
        self._logged += 1
        self._rows.append((step, row))
        if step >= self._flush_at or len(self._rows) >= self._flush_every:
            self.save()
            self._flush_at = (step + 1) // self._flush_every * self._flush_every
            self._flush_at += self._flush_every - 1

    def log_hyperparams(self, params: Mapping[str, Any] | Namespace) -> None:
        """Write hyperparameters to `hparams.json`; a value that JSON has no form for as its repr.

        Args:
            params: names and values.
        """
        named = params if isinstance(params, Mapping) else vars(params)
        self._hparams.update(_jsonable(dict(named)))
        text = json.dumps(self._hparams, indent=2, allow_nan=False) + "\n"
        replace_file(self._claim() / _HPARAMS, lambda file: file.write(text))

    def save(self) -> None:
        """Write the rows held in memory; without any, nothing is created."""
        if not self._rows:
            return
        path = self._claim() / _METRICS
        new = {self._prefix + key: None for _, row in self._rows for key in row}
        columns = self._columns | new
        columns.pop(STEP, None)
        if list(columns) == list(self._columns):
            with path.open("a", encoding="utf-8", newline="") as file:
                csv_writer(file).writerows(self._lines(list(columns)))
        else:
            self._rewrite(path, list(columns))
            self._columns = columns
        self._rows.clear()

    def _lines(self, columns: Sequence[str]) -> list[list[float | str]]:
        start = len(self._prefix)
        keys = [column[start:] if column.startswith(self._prefix) else None for column in columns]
        return [
            [step, *("" if key is None else row.get(key, "") for key in keys)]
            for step, row in self._rows
        ]

    def _rewrite(self, path: Path, columns: Sequence[str]) -> None:
        """Replace the file by one with more columns, all old rows, and the rows held in memory."""

        def write(file: TextIO) -> None:
            writer = csv_writer(file)
            writer.writerow((STEP, *columns))
            with path.open(encoding="utf-8", newline="") as old:
                reader = csv.reader(old)
                next(reader, None)
                for line in reader:
                    writer.writerow(line + [""] * (1 + len(columns) - len(line)))
            writer.writerows(self._lines(columns))

        replace_file(path, write)

    @property
    def _root(self) -> Path:
        return Path(self._save_dir, self._name)

    def _folder_of(self, version: int | str) -> Path:
        return self._root / (version if isinstance(version, str) else f"version_{version}")

    def _claim(self) -> Path:
        """Return the folder of this run, made and taken for this logger alone at the first call."""
        if self._folder is None:
            try:
                self._folder = self._take_chosen() if self._is_version_chosen else self._take_next()
            except OSError as error:
                raise OptionError(
                    f"save_dir {self._save_dir!r} of CSVLogger: {self.log_dir} cannot be made "
                    f"({error.strerror or error}). Give a folder that can be written to."
                ) from error
        return self._folder

    def _take_chosen(self) -> Path:
        folder = self._folder_of(self.version)
        folder.mkdir(parents=True, exist_ok=True)
        if not create_csv(folder / _METRICS):
            self._columns = dict.fromkeys(continue_csv(folder / _METRICS))
        return folder

    def _take_next(self) -> Path:
        """Take the number that was told to somebody, else the next one that nobody has.

        A folder that was told may exist already, because somebody saved a checkpoint there; so what
        makes it ours is to be the one that creates the file in it.
        """
        promised = self._version
        number = _next_version(self._root) if promised is None else int(promised)
        while True:
            folder = self._folder_of(number)
            try:
                folder.mkdir(parents=True, exist_ok=number == promised)
                if create_csv(folder / _METRICS):
                    break
            except FileExistsError:
                pass  # somebody was faster
            number += 1
        self._version = number
        if promised not in {None, number}:
            warn(
                f"CSVLogger said that it would write to {self._folder_of(int(promised or 0))}, "
                f"which another logger took meanwhile: it writes to {folder}. Give each run its "
                "own name= or version= to know the folder beforehand.",
                TrainerHooksWarning,
            )
        return folder


def _check(save_dir: object, name: object, version: object, prefix: object, every: object) -> None:
    """Make sure that the arguments of a CSVLogger keep their rules."""
    if not isinstance(save_dir, str | os.PathLike):
        raise OptionError(f"save_dir {save_dir!r} of CSVLogger: must be a path. Give a folder.")
    if Path(save_dir).exists() and not Path(save_dir).is_dir():
        raise OptionError(
            f"save_dir {os.fspath(save_dir)!r} of CSVLogger: is a file, and must be a folder. "
            "Give another path."
        )
    for argument, value in (("name", name), ("prefix", prefix)):
        if not isinstance(value, str):
            raise OptionError(
                f"{argument} {value!r} of CSVLogger: must be a string. "
                f'Write {argument}="" to leave it out.'
            )
    is_number = isinstance(version, int) and not isinstance(version, bool) and version >= 0
    is_text = isinstance(version, str) and version != ""
    if not (version is None or is_number or is_text):
        raise OptionError(
            f"version {version!r} of CSVLogger: must be a number from 0 on, or a folder's name. "
            "Leave it out to take the next free number."
        )
    if not isinstance(every, int) or isinstance(every, bool) or every < 1:
        raise OptionError(
            f"flush_logs_every_n_steps {every!r} of CSVLogger: must be a whole number from 1 on. "
            "Write 1 to write each row at once."
        )


def _next_version(root: Path) -> int:
    """Return the number after the highest `version_N` in `root`."""
    names = [entry.name for entry in root.iterdir()] if root.is_dir() else []
    found = [int(match[1]) for match in map(_VERSION.fullmatch, names) if match]
    return max(found, default=-1) + 1


def _number(value: Any) -> float:
    """Return a tensor's or array's one value as it is now; anything else unchanged."""
    return value.item() if hasattr(value, "item") else value  # type: ignore[no-any-return]


def _jsonable(value: Any) -> Any:
    """Return `value` in a form that JSON has: itself, a container of such, or its repr."""
    if isinstance(value, Mapping):
        return {str(key): _jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(item) for item in value]
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    return repr(value)
