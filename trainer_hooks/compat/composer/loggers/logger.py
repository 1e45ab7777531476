"""Logger: what callbacks log with; it hands everything to every destination."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer_hooks.compat.composer.utils import ensure_tuple, format_name_with_dist

if TYPE_CHECKING:
    import os

    from trainer_hooks.compat.composer.core.state import State

__all__ = ["Logger"]


class Logger:
    """Hand what is logged to every destination; without a step it is the batch.

    Args:
        state: where the batch is read.
        destinations: where to.

    Attributes:
        destinations: likewise.
    """

    def __init__(self, state: State, destinations: Any = None) -> None:
        self.destinations: tuple[Any, ...] = ensure_tuple(destinations)
        self._state = state

    def log_hyperparameters(self, parameters: dict[str, Any]) -> None:
        """Log hyperparameters."""
        for destination in self.destinations:
            destination.log_hyperparameters(parameters)

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        """Log values by name."""
        place = self._place(step)
        for destination in self.destinations:
            destination.log_metrics(metrics, place)

    def log_table(
        self,
        columns: list[str],
        rows: list[list[Any]],
        name: str = "Table",
        step: int | None = None,
    ) -> None:
        """Log a table."""
        place = self._place(step)
        for destination in self.destinations:
            destination.log_table(columns, rows, name, place)

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
        """Log images; masks are for destinations that show them."""
        place = self._place(step)
        for destination in self.destinations:
            destination.log_images(
                images, name, channels_last, place, masks, mask_class_labels, use_table
            )

    def log_traces(self, traces: dict[str, Any]) -> None:
        """Log traces."""
        for destination in self.destinations:
            destination.log_traces(traces)

    def upload_file(
        self,
        remote_file_name: str,
        file_path: str | os.PathLike[str],
        *,
        overwrite: bool = False,
    ) -> None:
        """Hand a file to the destinations that keep files.

        Args:
            remote_file_name: under which name; `{run_name}` and `{rank}` are filled in.
            file_path: the file, likewise.
            overwrite: whether one of that name may be replaced.
        """
        name = self._state.run_name
        local = Path(format_name_with_dist(str(file_path), name))
        remote = format_name_with_dist(remote_file_name, name)
        for destination in self.destinations:
            destination.upload_file(self._state, remote, local, overwrite=overwrite)

    def has_file_upload_destination(self) -> bool:
        """Return whether a destination keeps files."""
        return any(destination.can_upload_files() for destination in self.destinations)

    def _place(self, step: int | None) -> int:
        return int(self._state.timestamp.batch) if step is None else step
