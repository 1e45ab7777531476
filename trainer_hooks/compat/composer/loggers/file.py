"""FileLogger: a line for each value, in a text file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from trainer_hooks.compat.composer.loggers.destination import LoggerDestination
from trainer_hooks.compat.composer.loggers.texts import format_log_data_value
from trainer_hooks.compat.composer.utils import format_name_with_dist
from trainer_hooks.errors import OptionError, UsageError

if TYPE_CHECKING:
    from trainer_hooks.compat.composer.core.state import State
    from trainer_hooks.compat.composer.loggers.logger import Logger

__all__ = ["FileLogger"]


class FileLogger(LoggerDestination):
    """Write a line for each value that is logged.

    Args:
        filename: the file; `{run_name}` and `{rank}` are filled in.
        remote_file_name: under which name destinations that keep files get it; that of the file
            unless given.
        capture_stdout: False: what is printed is not written; redirect the program's output.
        capture_stderr: likewise.
        buffer_size: how many bytes are held back; 1 for a line.
        log_traces: kept, and not used.
        flush_interval: after so many batches and epochs the file is brought to the disk.
        overwrite: whether a file that is there may be written over.

    Raises:
        OptionError: it is to capture what is printed.
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
        self._waiting: list[str] = []

    @property
    def filename(self) -> str:
        """The file."""
        return self._filled(self.filename_format)

    @property
    def remote_file_name(self) -> str:
        """The name that destinations which keep files get."""
        return self._filled(self.remote_file_name_format).lstrip("/")

    def init(self, state: State, logger: Logger) -> None:
        """Open the file.

        Raises:
            UsageError: it is open, or there and not to be written over.
        """
        if self.file is not None:
            raise UsageError("FileLogger: it is open already. Close the other trainer first.")
        self._run_name = state.run_name
        path = Path(self.filename)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self.file = path.open(
                "w" if self.overwrite else "x", buffering=self.buffer_size, encoding="utf-8"
            )
        except FileExistsError as error:
            raise UsageError(
                f"FileLogger({self.filename!r}): the file is there. Give the run another run_name, "
                "or pass overwrite=True."
            ) from error
        self._write_waiting()

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        """Write a line for each value."""
        for name, value in metrics.items():
            shown = format_log_data_value(value)
            self.write(f"[metric][batch={step}]: ", f"{name}: {shown} \n")

    def log_hyperparameters(self, hyperparameters: dict[str, Any]) -> None:
        """Write a line for each hyperparameter."""
        for name, value in hyperparameters.items():
            self.write("[hyperparameter]: ", f"{name}: {format_log_data_value(value)} \n")

    def log_table(
        self,
        columns: list[str],
        rows: list[list[Any]],
        name: str = "Table",
        step: int | None = None,
    ) -> None:
        """Write a table as JSON, in one line."""
        table = json.dumps({"columns": columns, "data": rows}, separators=(",", ":"))
        self.write("[table]: ", f"{name}: {table}\n")

    def write(self, prefix: str, s: str) -> None:
        """Write lines, each with a prefix; before `init` they wait."""
        self._waiting += [
            line if line == "\n" else f"{prefix}{line}" for line in s.splitlines(keepends=True)
        ]
        self._write_waiting()

    def epoch_start(self, state: State, logger: Logger) -> None:
        """Bring the file to the disk."""
        self._flush(logger)

    def batch_end(self, state: State, logger: Logger) -> None:
        """Bring the file to the disk, if that is due."""
        if int(state.timestamp.batch) % self.flush_interval == 0:
            self._flush(logger)

    def epoch_end(self, state: State, logger: Logger) -> None:
        """Bring the file to the disk, if that is due."""
        if int(state.timestamp.epoch) % self.flush_interval == 0:
            self._flush(logger)

    def eval_start(self, state: State, logger: Logger) -> None:
        """Bring the file to the disk."""
        self._flush(logger)

    def fit_end(self, state: State, logger: Logger) -> None:
        """Bring the file to the disk."""
        self._flush(logger)

    def close(self, state: State, logger: Logger) -> None:
        """Close the file."""
        if self.file is not None:
            self._flush(logger)
            self.file.close()
            self.file = None

    def _filled(self, template: str) -> str:
        if self._run_name is None:
            raise UsageError(
                "FileLogger.filename: the name of the run is not known before the trainer is made. "
                "Ask for it afterwards."
            )
        return format_name_with_dist(template, self._run_name)

    def _write_waiting(self) -> None:
        if self.file is not None:
            self.file.writelines(self._waiting)
            self._waiting = []

    def _flush(self, logger: Logger) -> None:
        if self.file is not None:
            self.file.flush()
            logger.upload_file(self.remote_file_name, self.file.name, overwrite=True)
