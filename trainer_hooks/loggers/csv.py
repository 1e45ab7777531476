"""CSVLogger: metrics in a CSV file and hyperparameters in a JSON file."""

from __future__ import annotations

import csv
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from trainer_hooks._files import replace_file
from trainer_hooks.errors import OptionError
from trainer_hooks.loggers.files import (
    STEP,
    append_rows,
    continue_csv,
    create_csv,
    csv_writer,
    cut_csv,
    holds_rows,
)
from trainer_hooks.loggers.folder_logger import FolderLogger
from trainer_hooks.loggers.hparams import as_dict, plain_number, write_hparams
from trainer_hooks.loggers.run_folder import RunFolder, check_text

if TYPE_CHECKING:
    import os
    from argparse import Namespace
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from typing import TextIO

    from trainer_hooks.loggers.csv_experiment import CSVExperiment

__all__ = ["CSVLogger"]

_METRICS = "metrics.csv"

_Row = tuple[int, dict[str, float]]


class CSVLogger(FolderLogger):
    """Write metrics to `save_dir/name/version_N/metrics.csv`, one row a call.

    The folder is made as a fit begins, or else at the first write, and no two loggers are ever
    given the same number. Rows are collected in memory and written every `flush_logs_every_n_steps`
    steps and at the end of a run; what was written survives a killed process. A metric that appears
    late becomes a new column. With a `version` of your own, rows are added to the file that is
    there.

    A run that is resumed goes on in the same folder. Rows that were written after the checkpoint,
    and so will be written again, are moved to `metrics.after_resume_0.csv` beside it.

    Args:
        save_dir: folder for all experiments.
        name: name of the experiment; an empty string or None leaves that level out.
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
        name: str | None = "trainer_logs",
        version: int | str | None = None,
        prefix: str = "",
        flush_logs_every_n_steps: int = 100,
    ) -> None:
        for argument, value in (("name", name or ""), ("prefix", prefix)):
            check_text(argument, value, "CSVLogger")
        _check_every(flush_logs_every_n_steps)
        self.run_folder = RunFolder("CSVLogger", save_dir, name, version, _METRICS, create_csv)
        self._name = name or ""
        self._prefix = f"{prefix}-" if prefix else ""
        self._flush_every = flush_logs_every_n_steps
        self._flush_at = flush_logs_every_n_steps - 1
        self._folder: Path | None = None
        self._columns: dict[str, None] = {}
        self._rows: list[_Row] = []
        self._logged = 0
        self._written = 0
        self._last: list[str] = []
        self._cut: tuple[int, list[str]] | None = None
        self._hparams: dict[str, Any] = {}

    @property
    def name(self) -> str:
        """Return the name of the experiment."""
        return self._name

    @property
    def experiment(self) -> CSVExperiment:
        """Return what writes the files, under the names that Lightning has for it."""
        from trainer_hooks.loggers.csv_experiment import CSVExperiment

        return CSVExperiment(self)

    @property
    def unwritten(self) -> list[dict[str, float]]:
        """Return the rows that are still held in memory, as they will stand in the file."""
        return [
            {STEP: step, **{self._prefix + key: value for key, value in row.items()}}
            for step, row in self._rows
        ]

    @property
    def columns(self) -> list[str]:
        """Return the names of the metrics in the file."""
        return list(self._columns)

    @property
    def hparams(self) -> dict[str, Any]:
        """Return the hyperparameters that were logged."""
        return dict(self._hparams)

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Take one row; without a `step` the rows are numbered."""
        row = dict(metrics)
        for value in row.values():
            if type(value) is not float and type(value) is not int:
                row = {key: plain_number(value) for key, value in row.items()}
                break
        if step is None:
            step = self._logged
        self._rows.append((step, row))
        if step >= self._flush_at or len(self._rows) >= self._flush_every:
            try:
                self.save()
            except BaseException:
                self._rows.pop()  # who is told that it failed gives this row again
                raise
            self._flush_at = (step + 1) // self._flush_every * self._flush_every
            self._flush_at += self._flush_every - 1
        self._logged += 1

    def log_hyperparams(self, params: Mapping[str, Any] | Namespace) -> None:
        """Write hyperparameters to `hparams.json` and `hparams.yaml`.

        A value that JSON has no form for is written as its repr.

        Args:
            params: names and values.
        """
        hparams = {**self._hparams, **as_dict(params)}
        write_hparams(self._claim(), hparams)
        self._hparams = hparams

    def run_state(self) -> dict[str, Any]:
        """Write the rows; return which folder, how many its file has, and any left over."""
        where = self.run_folder.state()
        self._claim()
        with suppress(OSError):  # a full disk: the rows are in the checkpoint instead
            self.save()
        unwritten = [[step, dict(row)] for step, row in self._rows]
        return {
            **where,
            "rows": self._written,
            "last": list(self._last),
            "logged": self._logged,
            "unwritten": unwritten,
        }

    def resume_run(self, state: dict[str, Any]) -> None:
        """Go on in the folder of a checkpoint, after the rows that it knows of."""
        if not self.run_folder.resume(state):
            return
        self._folder, self._cut = None, (state["rows"], state["last"])
        path = self.run_folder.path / _METRICS
        if path.is_file() and not holds_rows(path, *self._cut):
            self._cut = None
            if not self.run_folder.is_chosen:
                self.run_folder.leave()
        self._logged = state["logged"]
        self._rows = [(step, dict(row)) for step, row in state["unwritten"]]
        self._flush_at = self._flush_every - 1

    def save(self) -> None:
        """Write the rows held in memory; without any, nothing is created."""
        if not self._rows:
            return
        path = self._claim() / _METRICS
        new = {self._prefix + key: None for _, row in self._rows for key in row}
        columns = self._columns | new
        columns.pop(STEP, None)
        lines = self._lines(list(columns))
        if list(columns) == list(self._columns):
            append_rows(path, lines)
        else:
            self._rewrite(path, list(columns), lines)
            self._columns = columns
        self._written += len(lines)
        self._last = [str(cell) for cell in lines[-1]]
        self._rows.clear()

    def _lines(self, columns: Sequence[str]) -> list[list[float | str]]:
        start = len(self._prefix)
        keys = [column[start:] if column.startswith(self._prefix) else None for column in columns]
        return [
            [step, *("" if key is None else row.get(key, "") for key in keys)]
            for step, row in self._rows
        ]

    def _rewrite(
        self, path: Path, columns: Sequence[str], lines: Sequence[Sequence[float | str]]
    ) -> None:
        """Replace the file by one with more columns, all old rows, and the rows held in memory."""

        def write(file: TextIO) -> None:
            writer = csv_writer(file)
            writer.writerow((STEP, *columns))
            with path.open(encoding="utf-8", newline="") as old:
                reader = csv.reader(old)
                next(reader, None)
                for line in reader:
                    writer.writerow(line + [""] * (1 + len(columns) - len(line)))
            writer.writerows(lines)

        replace_file(path, write)

    def _claim(self) -> Path:
        """Return the folder of this run, its file ready to be added to."""
        if self._folder is None:
            folder = self.run_folder.claim()
            cut, path = self._cut, folder / _METRICS
            self._columns, self._written, self._last = {}, 0, []
            if self.run_folder.is_continued:
                self._continue(path)
                if cut is not None:
                    cut_csv(path, cut[0])
                    self._written, self._last = cut
            self._folder, self._cut = folder, None
        return self._folder

    def _continue(self, path: Path) -> None:
        """Take up a file that is there."""
        columns, self._written, self._last = continue_csv(path)
        self._columns = dict.fromkeys(columns)


def _check_every(every: object) -> None:
    if not isinstance(every, int) or isinstance(every, bool) or every < 1:
        raise OptionError(
            f"flush_logs_every_n_steps {every!r} of CSVLogger: must be a whole number from 1 on. "
            "Write 1 to write each row at once."
        )
