"""Logger: writes the values that callbacks log to every destination."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks.compat.composer.modules import package_getattr
from trainer_hooks.compat.composer.utils import ensure_tuple, format_name_with_dist

if TYPE_CHECKING:
    import os

    from trainer_hooks.adapters.composer.loggers import Rows
    from trainer_hooks.compat.composer.core.state import State

__all__ = ["Logger", "format_log_data_value"]

__getattr__ = package_getattr(__name__)


class Logger:
    """Write logged values to every destination; without a step, at the number of the batch.

    Args:
        state: the state whose timestamp counts the batches.
        destinations: a logger destination, or several.

    Attributes:
        destinations: the logger destinations.
    """

    def __init__(self, state: State, destinations: Any = None) -> None:
        self.destinations: tuple[Any, ...] = ensure_tuple(destinations)
        self._state = state

    def log_hyperparameters(self, parameters: dict[str, Any]) -> None:
        """Log hyperparameters."""
        for destination in self.destinations:
            destination.log_hyperparameters(parameters)

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        """Log metrics by name."""
        step = self._batch_if_none(step)
        for destination in self.destinations:
            destination.log_metrics(metrics, step)

    def log_table(
        self, columns: list[str], rows: Rows, name: str = "Table", step: int | None = None
    ) -> None:
        """Log a table."""
        step = self._batch_if_none(step)
        for destination in self.destinations:
            destination.log_table(columns, rows, name, step)

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
        """Log images, with masks for destinations that show them."""
        step = self._batch_if_none(step)
        for destination in self.destinations:
            destination.log_images(
                images, name, channels_last, step, masks, mask_class_labels, use_table
            )

    def log_traces(self, traces: dict[str, Any]) -> None:
        """Log the traces of algorithms."""
        for destination in self.destinations:
            destination.log_traces(traces)

    def upload_file(
        self, remote_file_name: str, file_path: str | os.PathLike[str], *, overwrite: bool = False
    ) -> None:
        """Upload a file to the destinations that keep files.

        Args:
            remote_file_name: the template of the name to upload it under, with `{run_name}` and
                `{rank}`.
            file_path: the template of the file's path.
            overwrite: whether a file of that name may be replaced.
        """
        run_name = self._state.run_name
        path = Path(format_name_with_dist(str(file_path), run_name))
        name = format_name_with_dist(remote_file_name, run_name)
        for destination in self.destinations:
            destination.upload_file(self._state, name, path, overwrite=overwrite)

    def has_file_upload_destination(self) -> bool:
        """Return whether a destination can upload files."""
        return any(destination.can_upload_files() for destination in self.destinations)

    def _batch_if_none(self, step: int | None) -> int:
        return int(self._state.timestamp.batch) if step is None else step


def format_log_data_value(data: Any) -> str:
    """Return a value as the text that a line of a log shows."""
    # first, as a str is iterable
    if isinstance(data, str):
        return f'"{data}"'
    if isinstance(data, float):
        return f"{data:.4f}"
    if isinstance(data, torch.Tensor):
        if data.numel() == 1:
            return format_log_data_value(data.item())
        return f"Tensor of shape {data.shape}"
    if isinstance(data, Mapping):
        shown = (f'"{name}": {format_log_data_value(value)}, ' for name, value in data.items())
        return "{ " + "".join(shown) + "}"
    if isinstance(data, Iterable):
        return f"[{', '.join(map(format_log_data_value, data))}]"
    return str(data)
