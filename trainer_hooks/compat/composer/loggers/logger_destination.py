"""LoggerDestination, and the destinations that print, write a text file or keep values."""

from __future__ import annotations

import copy
import json
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TextIO

import numpy as np
import torch

from trainer_hooks._output import losing_output
from trainer_hooks.compat.composer.core.callback import Callback
from trainer_hooks.compat.composer.core.time import Time, Timestamp, TimeUnit
from trainer_hooks.compat.composer.loggers.logger import format_log_data_value
from trainer_hooks.compat.composer.utils import format_name_with_dist
from trainer_hooks.errors import MetricError, OptionError, UsageError, did_you_mean

if TYPE_CHECKING:
    from trainer_hooks.adapters.composer.loggers import Rows
    from trainer_hooks.compat.composer.core.state import State
    from trainer_hooks.compat.composer.loggers.logger import Logger

__all__ = ["ConsoleLogger", "FileLogger", "InMemoryLogger", "LoggerDestination"]


class LoggerDestination(Callback):
    """A callback that writes logged values: override the `log_` methods that it supports.

    `init` opens its file or run, and `close` closes it.
    """

    is_destination: ClassVar[bool] = True

    def log_hyperparameters(self, hyperparameters: dict[str, Any]) -> None:
        """Write hyperparameters."""

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        """Write metrics by name; `step` is the number of the batch."""

    def log_table(
        self, columns: list[str], rows: Rows, name: str = "Table", step: int | None = None
    ) -> None:
        """Write a table of rows."""

    def log_images(
        self,
        images: Any,
        name: str = "Images",
        channels_last: bool = False,
        step: int | None = None,
        masks: dict[str, Any] | None = None,
        mask_class_labels: dict[int, str] | None = None,
        use_table: bool = True,
    ) -> None:
        """Write images, with their masks."""

    def log_traces(self, traces: dict[str, Any]) -> None:
        """Write the traces of algorithms; there are none here."""

    def upload_file(
        self, state: State, remote_file_name: str, file_path: Path, *, overwrite: bool
    ) -> None:
        """Upload a file under a name."""

    def download_file(
        self,
        remote_file_name: str,
        destination: str,
        overwrite: bool = False,
        progress_bar: bool = True,
    ) -> None:
        """Download a file that was uploaded.

        Raises:
            UsageError: the destination does not override it.
        """
        raise UsageError(
            f"{type(self).__qualname__}.download_file({remote_file_name!r}): it keeps no files. "
            "Give an address such as 's3://bucket/run' where a path is taken."
        )

    def can_upload_files(self) -> bool:
        """Return whether it overrides `upload_file`."""
        return type(self).upload_file is not LoggerDestination.upload_file


class ConsoleLogger(LoggerDestination):
    """Print the latest logged values at an interval, and the metrics of each evaluation.

    Args:
        log_interval: a number of epochs, or a time in epochs or batches such as `"10ba"`.
        stream: an open file, `"stdout"` or `"stderr"`.
        log_traces: kept, and not used.

    Raises:
        OptionError: the interval has another unit, or the stream is unknown.
    """

    def __init__(
        self,
        log_interval: Any = "1ba",
        stream: str | TextIO | None = None,
        log_traces: bool = False,
    ) -> None:
        super().__init__()
        self.log_interval = Time.from_input(log_interval, TimeUnit.EPOCH)
        if self.log_interval.unit not in (TimeUnit.EPOCH, TimeUnit.BATCH):
            raise OptionError(
                f"log_interval {log_interval!r} of ConsoleLogger: must be in epochs or batches. "
                "Write '1ep' or '10ba'."
            )
        if isinstance(stream, str) and stream not in ("stdout", "stderr"):
            raise OptionError(
                f"stream {stream!r} of ConsoleLogger: must be 'stdout', 'stderr' or an open file."
            )
        self._stream = stream
        self.should_log_traces = log_traces
        self.logged_metrics: dict[str, Any] = {}
        self.eval_logged_metrics: dict[str, Any] = {}
        self._is_evaluating = False

    @property
    def stream(self) -> TextIO:
        """The stream that it prints to."""
        if self._stream is None or isinstance(self._stream, str):
            # looked up at each line, since a notebook or a test may replace sys.stdout
            return sys.stdout if self._stream == "stdout" else sys.stderr
        return self._stream

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        """Keep metrics until they are printed."""
        (self.eval_logged_metrics if self._is_evaluating else self.logged_metrics).update(metrics)

    def log_hyperparameters(self, hyperparameters: dict[str, Any]) -> None:
        """Print hyperparameters."""
        for name, value in hyperparameters.items():
            self._print_line(f"{name}: {format_log_data_value(value)}")

    def batch_end(self, state: State, logger: Logger) -> None:
        """Print the kept metrics if that is due by batches."""
        unit = self.log_interval.unit
        if unit is TimeUnit.BATCH and int(state.timestamp.batch) % int(self.log_interval) == 0:
            self._print_train_metrics(state)

    def epoch_end(self, state: State, logger: Logger) -> None:
        """Print the kept metrics if that is due by epochs."""
        unit = self.log_interval.unit
        if unit is TimeUnit.EPOCH and int(state.timestamp.epoch) % int(self.log_interval) == 0:
            self._print_train_metrics(state)

    def fit_end(self, state: State, logger: Logger) -> None:
        """Print the metrics that were not printed yet."""
        # those since the last full interval
        if self.logged_metrics:
            self._print_train_metrics(state)

    def eval_start(self, state: State, logger: Logger) -> None:
        """Keep the metrics of the evaluation apart from those of the training."""
        self._is_evaluating = True

    def eval_end(self, state: State, logger: Logger) -> None:
        """Print the metrics of the evaluation."""
        self._is_evaluating = False
        self._print_line(f"[Eval {state.dataloader_label} epoch={int(state.timestamp.epoch)}]:")
        self._print_metrics(self.eval_logged_metrics, "Eval")
        self.eval_logged_metrics = {}

    def _print_train_metrics(self, state: State) -> None:
        now = state.timestamp
        self._print_line(f"[epoch={int(now.epoch)}][batch={int(now.batch_in_epoch)}]:")
        self._print_metrics(self.logged_metrics, "Train")
        self.logged_metrics = {}

    def _print_metrics(self, metrics: dict[str, Any], phase: str) -> None:
        for name, value in metrics.items():
            self._print_line(f"\t {phase} {name}: {format_log_data_value(value)}")

    def _print_line(self, line: str) -> None:
        with losing_output(self.stream):
            print(line, file=self.stream, flush=True)


class FileLogger(LoggerDestination):
    """Write a line for each logged value to a text file.

    Args:
        filename: the template of the file's path, with `{run_name}` and `{rank}`.
        remote_file_name: the template of the name to upload the file under; that of the path unless
            given.
        capture_stdout: False: printed text is not written; redirect the program's output.
        capture_stderr: False, for the same reason.
        buffer_size: the size of the buffer in bytes; 1 for a line.
        log_traces: kept, and not used.
        flush_interval: the number of batches, and of epochs, after which the file is flushed.
        overwrite: whether an existing file may be overwritten.

    Raises:
        OptionError: it is to capture printed text.
    """

    def __init__(
        self,
        filename: str = "{run_name}/logs-rank{rank}.txt",
        remote_file_name: str | None = None,
        *,
        capture_stdout: bool = False,
        capture_stderr: bool = False,
        buffer_size: int = 1,
        log_traces: bool = True,
        flush_interval: int = 100,
        overwrite: bool = False,
    ) -> None:
        super().__init__()
        for option, value in (("stdout", capture_stdout), ("stderr", capture_stderr)):
            if value:
                raise OptionError(
                    f"FileLogger(capture_{option}=True): it would take the place of sys.{option}. "
                    "Redirect the program's output, as with `python train.py > out.txt`."
                )
        self.filename_format = filename
        self.remote_file_name_format = remote_file_name or filename
        self.buffer_size = buffer_size
        self.should_log_traces = log_traces
        self.flush_interval = flush_interval
        self.overwrite = overwrite
        self.file: TextIO | None = None
        self._run_name: str | None = None
        self._pending_lines: list[str] = []

    @property
    def filename(self) -> str:
        """The path of the file."""
        return self._format(self.filename_format)

    @property
    def remote_file_name(self) -> str:
        """The name that the file is uploaded under."""
        return self._format(self.remote_file_name_format).lstrip("/")

    def init(self, state: State, logger: Logger) -> None:
        """Open the file.

        Raises:
            UsageError: it is open already, or exists and must not be overwritten.
        """
        if self.file is not None:
            raise UsageError("FileLogger: it is open already. Close the other trainer first.")
        self._run_name = state.run_name
        path = Path(self.filename)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            # "x" fails if the file exists, also if another process makes it in this moment
            self.file = path.open(
                "w" if self.overwrite else "x", buffering=self.buffer_size, encoding="utf-8"
            )
        except FileExistsError as error:
            raise UsageError(
                f"FileLogger({self.filename!r}): the file is there. Give the run another run_name, "
                "or pass overwrite=True."
            ) from error
        self._write_pending()

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        """Write a line for each metric."""
        for name, value in metrics.items():
            shown = format_log_data_value(value)
            self.write(f"[metric][batch={step}]: ", f"{name}: {shown} \n")

    def log_hyperparameters(self, hyperparameters: dict[str, Any]) -> None:
        """Write a line for each hyperparameter."""
        for name, value in hyperparameters.items():
            self.write("[hyperparameter]: ", f"{name}: {format_log_data_value(value)} \n")

    def log_table(
        self, columns: list[str], rows: Rows, name: str = "Table", step: int | None = None
    ) -> None:
        """Write a table as JSON, in one line."""
        table = json.dumps({"columns": columns, "data": rows}, separators=(",", ":"))
        self.write("[table]: ", f"{name}: {table}\n")

    def write(self, prefix: str, s: str) -> None:
        """Write lines, each with a prefix; lines from before `init` are written at `init`."""
        # as in Composer, an empty line has no prefix
        self._pending_lines += [
            line if line == "\n" else f"{prefix}{line}" for line in s.splitlines(keepends=True)
        ]
        self._write_pending()

    def epoch_start(self, state: State, logger: Logger) -> None:
        """Flush and upload the file."""
        self._flush(logger)

    eval_start = fit_end = epoch_start

    def batch_end(self, state: State, logger: Logger) -> None:
        """Flush and upload the file if that is due."""
        if int(state.timestamp.batch) % self.flush_interval == 0:
            self._flush(logger)

    def epoch_end(self, state: State, logger: Logger) -> None:
        """Flush and upload the file if that is due."""
        if int(state.timestamp.epoch) % self.flush_interval == 0:
            self._flush(logger)

    def close(self, state: State, logger: Logger) -> None:
        """Flush, upload and close the file."""
        if self.file is not None:
            self._flush(logger)
            self.file.close()
            self.file = None

    def _format(self, template: str) -> str:
        if self._run_name is None:
            raise UsageError(
                "FileLogger.filename: the name of the run is not known before the trainer is made. "
                "Ask for it afterwards."
            )
        return format_name_with_dist(template, self._run_name)

    def _write_pending(self) -> None:
        if self.file is not None:
            self.file.writelines(self._pending_lines)
            self._pending_lines = []

    def _flush(self, logger: Logger) -> None:
        if self.file is not None:
            self.file.flush()
            # each upload replaces that of the shorter file
            logger.upload_file(self.remote_file_name, self.file.name, overwrite=True)


class InMemoryLogger(LoggerDestination):
    """Keep all logged values in memory, for notebooks and tests.

    Attributes:
        data: the timestamps and values of each metric, by name.
        most_recent_values: the last value of each metric, by name.
        most_recent_timestamps: the timestamp of that value, by name.
        hyperparameters: the hyperparameters, by name.
        tables: the tables as JSON, by name.
    """

    def __init__(self) -> None:
        super().__init__()
        self.data: dict[str, list[tuple[Timestamp, Any]]] = {}
        self.most_recent_values: dict[str, Any] = {}
        self.most_recent_timestamps: dict[str, Timestamp] = {}
        self.hyperparameters: dict[str, Any] = {}
        self.tables: dict[str, str] = {}
        self.state: State | None = None

    def init(self, state: State, logger: Logger) -> None:
        """Keep the state, for its timestamps."""
        self.state = state

    def log_hyperparameters(self, hyperparameters: dict[str, Any]) -> None:
        """Keep hyperparameters."""
        self.hyperparameters.update(hyperparameters)

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        """Keep copies of metrics with the present timestamp."""
        now = Timestamp() if self.state is None else self.state.timestamp
        # copies, since a logged tensor may be changed in place afterwards
        for name, value in copy.deepcopy(metrics).items():
            self.data.setdefault(name, []).append((now, value))
            self.most_recent_values[name] = value
            self.most_recent_timestamps[name] = now

    def log_table(
        self, columns: list[str], rows: Rows, name: str = "Table", step: int | None = None
    ) -> None:
        """Keep a table, as pandas writes it with `orient="split"`."""
        self.tables[name] = json.dumps(
            {"columns": columns, "data": rows}, ensure_ascii=False, separators=(",", ":")
        )

    def get_timeseries(self, metric: str) -> dict[str, Any]:
        """Return the values of a metric and of its timestamps as arrays, by name.

        Args:
            metric: the name of the metric.

        Raises:
            MetricError: the metric was not logged.
        """
        if metric not in self.data:
            raise MetricError(
                f"get_timeseries({metric!r}): it was not logged."
                f"{did_you_mean(metric, self.data)} Ask for one of logger.data."
            )
        series: dict[str, list[Any]] = {metric: [_number(v) for _, v in self.data[metric]]}
        for timestamp, _ in self.data[metric]:
            for name, count in timestamp.state_dict().items():
                is_wall_time = isinstance(count, timedelta)
                series.setdefault(name, []).append(count.total_seconds() if is_wall_time else count)
        return {name: np.array(values) for name, values in series.items()}


def _number(value: Any) -> Any:
    return value.tolist() if isinstance(value, torch.Tensor) else value
