"""CSVLogger: write metrics to a CSV file and hyperparameters to a JSON file."""

from __future__ import annotations

import csv
import io
import os
from contextlib import suppress
from itertools import chain, count, islice
from typing import TYPE_CHECKING, Any, ClassVar

from trainer_hooks._files import remove_stale_temporaries, replace_file
from trainer_hooks._log import log
from trainer_hooks._options import STRING, Rule, answers_keywords, check_options, is_int
from trainer_hooks._text import count_with_noun
from trainer_hooks.errors import OptionError
from trainer_hooks.loggers.conversion import HPARAMS_YAML, as_dict, plain_number, write_hparams
from trainer_hooks.loggers.run_folder import FolderLogger, RunFolder

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path
    from typing import TextIO

STEP = "step"
"""The first column of a metrics file."""
_METRICS = "metrics.csv"
_AFTER_RESUME, _EARLIER_RUN = "after_resume", "earlier_run"
"""Labels of the files beside it that rows are moved to."""
_Row = tuple[int, dict[str, float]]

_RULES = {
    "name": STRING,
    "prefix": STRING,
    "flush_logs_every_n_steps": Rule(
        "a whole number from 1 on",
        lambda value: is_int(value, 1),
        "Write 1 to write each row at once.",
    ),
}


class CSVLogger(FolderLogger):
    """Write metrics to `save_dir/name/version_N/metrics.csv`, one row per call.

    The folder is made when a fit begins, or else at the first write, and no two loggers ever get
    the same number. Rows are collected in memory and written every `flush_logs_every_n_steps` steps
    and at the end of a run; rows on disk survive a killed process. A metric that appears late
    becomes a new column. With a chosen `version`, rows are added to an existing file; but a new
    training moves the rows of earlier runs to `metrics.earlier_run_0.csv` first.

    A resumed run continues in the same folder. Rows that were written after the checkpoint will be
    written again, so the old ones are moved to `metrics.after_resume_0.csv` beside the file.

    Args:
        save_dir: folder for all experiments.
        name: name of the experiment; an empty string or None leaves that level out.
        version: a number, or the whole name of the folder. Default: the next free number.
        prefix: text before each metric's name, joined by a dash.
        flush_logs_every_n_steps: the number of steps, or rows, that a killed process may lose.

    Raises:
        OptionError: an argument breaks its rule, or the folder cannot be made.

    Example::

        trainer = Trainer(logger=CSVLogger("logs", name="digits"))
    """

    @answers_keywords
    def __init__(
        self,
        save_dir: str | os.PathLike[str],
        name: str | None = "trainer_logs",
        version: int | str | None = None,
        prefix: str = "",
        flush_logs_every_n_steps: int = 100,
    ) -> None:
        check_options(
            "CSVLogger",
            _RULES,
            name=name or "",
            prefix=prefix,
            flush_logs_every_n_steps=flush_logs_every_n_steps,
        )
        self.run_folder = RunFolder("CSVLogger", save_dir, name, version, _METRICS, f"{STEP}\n")
        self._name = name or ""
        self._prefix = f"{prefix}-" if prefix else ""
        self._write_every = flush_logs_every_n_steps
        self._write_at = flush_logs_every_n_steps - 1
        self._folder: Path | None = None
        self._columns: dict[str, None] = {}
        self._rows: list[_Row] = []
        self._logged = 0
        self._written = 0
        self._last: list[str] = []
        self._cut: tuple[int, list[str]] | None = None
        self._cut_label = _AFTER_RESUME
        self._hparams: dict[str, Any] = {}

    @property
    def name(self) -> str:
        """Return the name of the experiment."""
        return self._name

    @property
    def experiment(self) -> CSVExperiment:
        """Return the writer of the files, under the names that Lightning has for it."""
        return CSVExperiment(self)

    @property
    def unwritten(self) -> list[dict[str, float]]:
        """Return the rows that are still held in memory, as they will be written to the file."""
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
        """Hold one row in memory; write all to the file when enough rows or steps are there.

        `flush_logs_every_n_steps` says how many.
        """
        row = dict(metrics)
        # plain numbers, the common case, are not copied once more
        for value in row.values():
            if type(value) is not float and type(value) is not int:
                row = {key: plain_number(value) for key, value in row.items()}
                break
        if step is None:
            step = self._logged
        self._rows.append((step, row))
        if step >= self._write_at or len(self._rows) >= self._write_every:
            try:
                self.save()
            except BaseException:
                self._rows.pop()  # the caller repeats the call that failed, with this row
                raise
            # the next step at which to write: with 100 that is 99, 199, ..., whatever was logged
            self._write_at = (step + 1) // self._write_every * self._write_every
            self._write_at += self._write_every - 1
        self._logged += 1

    def log_hyperparams(self, params: Mapping[str, Any] | Namespace | None = None) -> None:
        """Write hyperparameters to `hparams.json` and `hparams.yaml`.

        A value that JSON has no form for is written as its repr.

        Args:
            params: values by name; None for no more than those that were logged.
        """
        params = {} if params is None else params
        hparams = {**self._hparams, **as_dict(params)}
        write_hparams(self._claim(), hparams)
        self._hparams = hparams

    def run_state(self) -> dict[str, Any]:
        """Write the rows; return the folder, its number of rows, and the unwritten rows."""
        # this claims the folder: a resume must find it even if no row is written yet
        self._claim()
        # on a full disk the checkpoint holds the rows, and they are written after the resume
        with suppress(OSError):
            self.save()
        return {
            **self.run_folder.state(),
            "rows": self._written,
            "last": list(self._last),
            "logged": self._logged,
            "unwritten": [[step, dict(row)] for step, row in self._rows],
        }

    def resume_run(self, state: dict[str, Any]) -> None:
        """Continue in the folder of a checkpoint, after the rows that the checkpoint counts."""
        if not self.owns_run(state):
            return
        self.run_folder.resume(state)
        self._folder, self._cut = None, (state["rows"], state["last"])
        self._cut_label = _AFTER_RESUME
        path = self.run_folder.path / _METRICS
        # a file without the checkpoint's rows is another run's, and is left alone
        if path.is_file() and not holds_rows(path, *self._cut):
            self._cut = None
            if not self.run_folder.is_chosen:
                self.run_folder.start_new()
        self._logged = state["logged"]
        self._rows = [(step, dict(row)) for step, row in state["unwritten"]]
        self._write_at = self._write_every - 1

    def set_earlier_run_aside(self) -> None:
        """Move the rows of an earlier run to `metrics.earlier_run_0.csv`, at the next write."""
        # once this logger has written to the folder, the rows there are its own
        if self._folder is None and self._cut is None:
            self._cut, self._cut_label = (0, []), _EARLIER_RUN

    def unwritten_steps(self) -> list[int]:
        """Return the step of each row held in memory."""
        return [step for step, _ in self._rows]

    def save(self) -> None:
        """Write the rows held in memory; without any, nothing is created."""
        if not self._rows:
            return
        path = self._claim() / _METRICS
        # a dict for a set: columns stay in the order in which they were logged
        new = {self._prefix + key: None for _, row in self._rows for key in row}
        columns = self._columns | new
        # a metric named `step` gets no column: the first one holds the position
        columns.pop(STEP, None)
        lines = self._lines(list(columns))
        if list(columns) == list(self._columns):
            append_rows(path, lines)
        else:
            _add_columns(path, [STEP, *columns], lines)
            self._columns = columns
        self._written += len(lines)
        self._last = [str(cell) for cell in lines[-1]]
        # last: if a write failed, the rows are still there for the next one
        self._rows.clear()

    def _lines(self, columns: Sequence[str]) -> list[list[float | str]]:
        start = len(self._prefix)
        # a column of an earlier run with another prefix stays empty
        keys = [column[start:] if column.startswith(self._prefix) else None for column in columns]
        return [
            [step, *("" if key is None else row.get(key, "") for key in keys)]
            for step, row in self._rows
        ]

    def _claim(self) -> Path:
        """Return the folder of this run, with its file ready for more rows."""
        if self._folder is None:
            folder = self.run_folder.claim()
            cut, path = self._cut, folder / _METRICS
            self._columns, self._written, self._last = {}, 0, []
            if self.run_folder.is_continued:
                remove_stale_temporaries(folder)
                columns, self._written, self._last = continue_csv(path)
                self._columns = dict.fromkeys(columns)
                if cut is not None:
                    cut_csv(path, cut[0], self._cut_label)
                    self._written, self._last = cut
                    if self._cut_label == _EARLIER_RUN:
                        self._columns = {}
            # last, so that the next call tries again if the file could not be read
            self._folder, self._cut = folder, None
        return self._folder


class CSVExperiment:
    """The files of a `CSVLogger`, under the names of Lightning's `ExperimentWriter`.

    Args:
        logger: the logger that does all the work.
    """

    NAME_METRICS_FILE: ClassVar[str] = _METRICS
    NAME_HPARAMS_FILE: ClassVar[str] = HPARAMS_YAML

    def __init__(self, logger: CSVLogger) -> None:
        self._logger = logger

    if not TYPE_CHECKING:  # type checkers would take any attribute to be there

        def __getattr__(self, name: str) -> Any:
            advice = ""
            if name.startswith("add_"):
                # of modules that were written for Lightning, whose default logger is TensorBoard's
                advice = (
                    ": CSV files hold metrics alone. Pass Trainer(logger=TensorBoardLogger("
                    "'logs')) of trainer_hooks.loggers, which has it"
                )
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}{advice}",
                name=name,
                obj=self,
            )

    @property
    def log_dir(self) -> str:
        """The folder of the run."""
        return self._logger.log_dir

    @property
    def metrics_file_path(self) -> str:
        """The file with the metrics."""
        return f"{self._logger.log_dir}/{_METRICS}"

    @property
    def metrics(self) -> list[dict[str, float]]:
        """The rows that are not written yet."""
        return self._logger.unwritten

    @property
    def metrics_keys(self) -> list[str]:
        """The names of the metrics in the file."""
        return self._logger.columns

    @property
    def hparams(self) -> dict[str, Any]:
        """The hyperparameters that were logged."""
        return self._logger.hparams

    def log_metrics(self, metrics_dict: Mapping[str, float], step: int | None = None) -> None:
        """Add a row."""
        self._logger.log_metrics(metrics_dict, step)

    def log_hparams(self, params: Mapping[str, Any]) -> None:
        """Add hyperparameters."""
        self._logger.log_hyperparams(params)

    def save(self) -> None:
        """Write the rows that are held in memory."""
        self._logger.save()


def continue_csv(path: Path) -> tuple[list[str], int, list[str]]:
    """Return the metric names, the number of rows and the last row of an existing file.

    An incomplete row at the end is dropped.

    Raises:
        OptionError: the file was not written by a CSVLogger, or is damaged.
    """
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    rows, last, fault = 0, list[str](), ""
    try:
        lines = io.TextIOWrapper(io.BytesIO(content[:whole]), encoding="utf-8", newline="")
        reader = csv.reader(lines)
        header = next(reader, [STEP])
        for row in reader:
            rows, last = rows + 1, row
        if header[0] != STEP:
            fault = f"its first column is {header[0]!r}, not {STEP!r}"
    except (UnicodeDecodeError, csv.Error) as error:
        fault = str(error)
    if fault:
        raise OptionError(
            f"version of CSVLogger: {path} was not written by a CSVLogger, or is damaged ({fault})."
            " Choose another version or move that file away."
        )
    # a killed process left a part of a row, to which the next row would be appended
    if whole != len(content):
        os.truncate(path, whole)
    # not even the header was complete
    if not whole:
        path.write_text(f"{STEP}\n", encoding="utf-8")
    return header[1:], rows, last


def append_rows(path: Path, rows: Iterable[Sequence[Any]]) -> None:
    """Append rows to a file, all of them or none."""
    size = path.stat().st_size
    try:
        with path.open("a", encoding="utf-8", newline="") as file:
            csv_writer(file).writerows(rows)
    except OSError:
        # a row written in part would end the file; a full disk still allows to shorten it
        os.truncate(path, size)
        raise


def holds_rows(path: Path, rows: int, last: Sequence[str]) -> bool:
    """Return whether a file has at least `rows` rows, the last of them with the cells `last`."""
    try:
        _, first, _ = _read(path, rows)
    except (UnicodeDecodeError, csv.Error):  # damaged, or written by another program
        return False
    return len(first) == rows and (not first or without_gaps(first[-1]) == without_gaps(last))


def cut_csv(path: Path, rows: int, label: str = _AFTER_RESUME) -> None:
    """Keep the first `rows` rows of a file, and move the others to a file beside it.

    Args:
        path: the file.
        rows: the number of rows to keep; without any the columns go, too.
        label: the word in the other file's name.
    """
    header, first, surplus = _read(path, rows)
    if surplus:
        beside = free_name(path, label)
        # the surplus first: a crash in between leaves these rows twice, and loses none
        _write_all(beside, [header, *surplus])
        _write_all(path, [header, *first] if rows or label == _AFTER_RESUME else [[STEP]])
        if label == _EARLIER_RUN:
            count_of = count_with_noun(len(surplus), "row")
            log.info("%s: %s of an earlier run moved to %r", path.name, count_of, str(beside))


def _add_columns(path: Path, header: Sequence[str], lines: Iterable[Sequence[Any]]) -> None:
    """Write a file anew with more columns, and with rows at its end."""

    def write(file: TextIO) -> None:
        # row by row, as the file may be long; rows on disk have no cells for the new columns
        with path.open(encoding="utf-8", newline="") as before:
            old = islice(csv.reader(before), 1, None)
            rows = (row + [""] * (len(header) - len(row)) for row in old)
            csv_writer(file).writerows(chain([header], rows, lines))

    replace_file(path, write)


def _read(path: Path, rows: int) -> tuple[list[str], list[list[str]], list[list[str]]]:
    """Return a file's header, its first `rows` rows, and the rows after those."""
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.reader(file)
        header = next(reader, [STEP])
        return header, list(islice(reader, rows)), list(reader)


def without_gaps(cells: Sequence[str]) -> list[str]:
    """Return a row without the empty cells at its end, which columns added later gave it."""
    count = len(cells)
    while count and cells[count - 1] == "":
        count -= 1
    return list(cells[:count])


def free_name(path: Path, label: str) -> Path:
    """Return a path beside `path` that does not exist yet, as `metrics.<label>_0.csv`."""
    names = (f"{path.stem}.{label}_{number}{path.suffix}" for number in count())
    return next(candidate for candidate in map(path.with_name, names) if not candidate.exists())


def _write_all(path: Path, rows: Iterable[Sequence[Any]]) -> None:
    replace_file(path, lambda file: csv_writer(file).writerows(rows))


def csv_writer(file: TextIO) -> Any:
    """Return a `csv.writer` whose rows end in a bare line feed."""
    return csv.writer(file, lineterminator="\n")
