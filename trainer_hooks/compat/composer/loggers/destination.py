"""LoggerDestination: a callback that writes what is logged somewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.compat.composer.core.callback import Callback
from trainer_hooks.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from trainer_hooks.compat.composer.core.state import State

__all__ = ["LoggerDestination"]


class LoggerDestination(Callback):
    """Override what it has a place for; the rest is left out.

    It is a callback too: `init` opens what `close` closes.
    """

    def log_hyperparameters(self, hyperparameters: dict[str, Any]) -> None:
        """Take hyperparameters."""

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        """Take values by name; `step` is the batch."""

    def log_table(
        self,
        columns: list[str],
        rows: list[list[Any]],
        name: str = "Table",
        step: int | None = None,
    ) -> None:
        """Take a table."""

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
        """Take images, and masks of them."""

    def log_traces(self, traces: dict[str, Any]) -> None:
        """Take traces of algorithms, of which there are none."""

    def upload_file(
        self, state: State, remote_file_name: str, file_path: Path, *, overwrite: bool
    ) -> None:
        """Take a file."""

    def download_file(
        self,
        remote_file_name: str,
        destination: str,
        overwrite: bool = False,
        progress_bar: bool = True,
    ) -> None:
        """Give a file back.

        Raises:
            UsageError: unless it is overridden.
        """
        raise UsageError(
            f"{type(self).__qualname__}.download_file({remote_file_name!r}): it keeps no files. "
            "Give an address such as 's3://bucket/run' where a path is taken."
        )

    def can_upload_files(self) -> bool:
        """Return whether it keeps files."""
        return type(self).upload_file is not LoggerDestination.upload_file
