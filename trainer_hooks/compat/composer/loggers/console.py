"""ConsoleLogger: what was logged, printed at an interval."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TextIO

from trainer_hooks.compat.composer.core.times import Time, TimeUnit
from trainer_hooks.compat.composer.loggers.destination import LoggerDestination
from trainer_hooks.compat.composer.loggers.texts import format_log_data_value
from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    from trainer_hooks.compat.composer.core.state import State
    from trainer_hooks.compat.composer.loggers.logger import Logger

__all__ = ["ConsoleLogger"]


class ConsoleLogger(LoggerDestination):
    """Print what was logged, at an interval, and the metrics of each evaluation.

    Args:
        log_interval: a number of epochs, or a text in epochs or batches.
        stream: an open file, `"stdout"` or `"stderr"`.
        log_traces: kept, and not used.

    Raises:
        OptionError: the interval has another unit, or the stream is none.
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
        """Where it prints."""
        if self._stream is None or isinstance(self._stream, str):
            return sys.stdout if self._stream == "stdout" else sys.stderr
        return self._stream

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        """Keep values until they are printed."""
        (self.eval_logged_metrics if self._is_evaluating else self.logged_metrics).update(metrics)

    def log_hyperparameters(self, hyperparameters: dict[str, Any]) -> None:
        """Print hyperparameters."""
        for name, value in hyperparameters.items():
            self._print(f"{name}: {format_log_data_value(value)}")

    def batch_end(self, state: State, logger: Logger) -> None:
        """Print, if that is due by batches."""
        done, unit = int(state.timestamp.batch), self.log_interval.unit
        if unit is TimeUnit.BATCH and done % int(self.log_interval) == 0:
            self._print_values(state)

    def epoch_end(self, state: State, logger: Logger) -> None:
        """Print, if that is due by epochs."""
        done, unit = int(state.timestamp.epoch), self.log_interval.unit
        if unit is TimeUnit.EPOCH and done % int(self.log_interval) == 0:
            self._print_values(state)

    def fit_end(self, state: State, logger: Logger) -> None:
        """Print what was not printed yet."""
        if self.logged_metrics:
            self._print_values(state)

    def eval_start(self, state: State, logger: Logger) -> None:
        """Keep what an evaluation logs apart."""
        self._is_evaluating = True

    def eval_end(self, state: State, logger: Logger) -> None:
        """Print what the evaluation logged."""
        self._is_evaluating = False
        self._print(f"[Eval {state.dataloader_label} epoch={int(state.timestamp.epoch)}]:")
        self._print_all(self.eval_logged_metrics, "Eval")
        self.eval_logged_metrics = {}

    def _print_values(self, state: State) -> None:
        now = state.timestamp
        self._print(f"[epoch={int(now.epoch)}][batch={int(now.batch_in_epoch)}]:")
        self._print_all(self.logged_metrics, "Train")
        self.logged_metrics = {}

    def _print_all(self, metrics: dict[str, Any], kind: str) -> None:
        for name, value in metrics.items():
            self._print(f"\t {kind} {name}: {format_log_data_value(value)}")

    def _print(self, line: str) -> None:
        print(line, file=self.stream, flush=True)
