"""InMemoryLogger: everything that was logged, with the timestamps."""

from __future__ import annotations

import copy
import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from trainer_hooks.compat.composer.core.timestamp import Timestamp
from trainer_hooks.compat.composer.loggers.destination import LoggerDestination
from trainer_hooks.errors import MetricError, nearest

if TYPE_CHECKING:
    from trainer_hooks.compat.composer.core.state import State
    from trainer_hooks.compat.composer.loggers.logger import Logger

__all__ = ["InMemoryLogger"]


class InMemoryLogger(LoggerDestination):
    """Keep everything that is logged, for notebooks and tests.

    Attributes:
        data: by name, a list of timestamps and values.
        most_recent_values: by name, the last value.
        most_recent_timestamps: by name, when that was.
        hyperparameters: the hyperparameters.
        tables: by name, the table as JSON.
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
        """Note where timestamps are read."""
        self.state = state

    def log_hyperparameters(self, hyperparameters: dict[str, Any]) -> None:
        """Keep hyperparameters."""
        self.hyperparameters.update(hyperparameters)

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        """Keep copies of values, with the timestamp of now."""
        now = Timestamp() if self.state is None else self.state.timestamp
        for name, value in copy.deepcopy(metrics).items():
            self.data.setdefault(name, []).append((now, value))
            self.most_recent_values[name] = value
            self.most_recent_timestamps[name] = now

    def log_table(
        self,
        columns: list[str],
        rows: list[list[Any]],
        name: str = "Table",
        step: int | None = None,
    ) -> None:
        """Keep a table, as pandas writes it with `orient="split"`."""
        self.tables[name] = json.dumps(
            {"columns": columns, "data": rows}, ensure_ascii=False, separators=(",", ":")
        )

    def get_timeseries(self, metric: str) -> dict[str, Any]:
        """Return the values of a metric and of each count of time beside them, as arrays.

        Raises:
            MetricError: it was not logged.
        """
        if metric not in self.data:
            raise MetricError(
                f"get_timeseries({metric!r}): it was not logged.{nearest(metric, self.data)} Ask "
                "for one of logger.data."
            )
        series: dict[str, list[Any]] = {metric: [_number(v) for _, v in self.data[metric]]}
        for timestamp, _ in self.data[metric]:
            for name, count in timestamp.state_dict().items():
                is_span = isinstance(count, timedelta)
                series.setdefault(name, []).append(count.total_seconds() if is_span else count)
        return {name: np.array(values) for name, values in series.items()}


def _number(value: Any) -> Any:
    return value.tolist() if isinstance(value, torch.Tensor) else value
