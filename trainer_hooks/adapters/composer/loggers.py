"""Composer's logger destinations over the loggers of trainer_hooks, and the other way round.

Nothing here imports Composer: the classes serve it and `trainer_hooks.compat.composer`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from trainer_hooks.adapters.callback_adapter import HostedCallback
from trainer_hooks.clock.progress import EpochStage
from trainer_hooks.context.run_state import present_step
from trainer_hooks.loggers.base import Logger

if TYPE_CHECKING:
    from collections.abc import Sequence

Rows = list[list[Any]]
"""The rows of a table, each with the values of its columns."""


class NativeDestination:
    """Mixin of Composer's `LoggerDestination`: write to loggers of trainer_hooks."""

    def native_loggers(self) -> list[Any]:
        """Return the loggers to write to; a subclass says which."""
        raise NotImplementedError

    def log_hyperparameters(self, hyperparameters: dict[str, Any]) -> None:
        """Log hyperparameters."""
        for logger in self.native_loggers():
            logger.log_hyperparams(hyperparameters)

    def log_table(
        self, columns: list[str], rows: Rows, name: str = "Table", step: int | None = None
    ) -> None:
        """Log a table."""
        for logger in self.native_loggers():
            logger.log_table(name, columns, rows, step=step)

    def log_images(
        self,
        images: Any,
        name: str = "Images",
        channels_last: bool = False,
        step: int | None = None,
        masks: Any = None,  # noqa: ARG002 - trainer_hooks' loggers show no masks
        mask_class_labels: Any = None,  # noqa: ARG002 - nor these
        use_table: bool = True,  # noqa: ARG002 - nor these
    ) -> None:
        """Log images, without their masks."""
        for logger in self.native_loggers():
            logger.log_images(images, name, channels_last, step)


class TrainerDestination(NativeDestination):
    """Hand metrics, tables, images and hyperparameters of Composer's Logger to a trainer.

    It has the methods of Composer's `LoggerDestination` and derives from none.

    Args:
        trainer: the trainer.
    """

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        """Log metrics to the loggers, the history and the callbacks' `on_log`."""
        self._trainer.log_metrics(metrics, step)

    def log_traces(self, traces: dict[str, Any]) -> None:
        """Drop the traces of algorithms, which have no place in the loggers."""

    def upload_file(self, *_: Any, **__: Any) -> None:
        """Keep no file."""

    def can_upload_files(self) -> bool:
        """Return False: no files are kept."""
        return False

    def native_loggers(self) -> list[Any]:
        """Return the trainer's loggers without adapted destinations."""
        # an adapted destination among the loggers is also a destination of Composer's Logger, which
        # calls it itself
        loggers = self._trainer.loggers
        return [logger for logger in loggers if not isinstance(logger, HostedCallback)]


def counted_step(trainer: Any, step: int | None) -> int | None:
    """Return the step of a logged value as Composer counts: the batches that are trained by then.

    trainer_hooks numbers a value by the index of the last completed batch.

    Args:
        trainer: the trainer that logs.
        step: the step that it gives the value; one that a callback chose by itself stays.
    """
    progress = trainer.progress
    is_present = step == present_step(trainer.state.fn, progress)
    return progress.batches_stepped if is_present else step


def logs_training_batch(trainer: Any) -> bool:
    """Return whether values that are logged now are of a training batch.

    Composer logs these before it counts the batch, so that they have the batch's index, too.
    """
    return trainer.progress.stage is EpochStage.BATCHES and not trainer.validating


class DestinationLogger(Logger):
    """Base of a logger of trainer_hooks that writes to destinations of Composer."""

    def call_destination(self, method: str, *arguments: Any) -> None:
        """Call a method of the destination or destinations; a subclass says which."""
        raise NotImplementedError

    def log_hyperparams(self, params: Any) -> None:
        """Log hyperparameters, a mapping or a namespace."""
        hyperparameters = dict(params) if hasattr(params, "keys") else vars(params)
        self.call_destination("log_hyperparameters", hyperparameters)

    def log_image(
        self,
        key: str,
        images: Sequence[Any],
        step: int | None = None,
        *,
        captions: Sequence[str] | None = None,  # noqa: ARG002 - Composer has none
        channels_last: bool = False,
    ) -> None:
        """Log images as one array of shape (N, ...), or of several shapes in a list."""
        arrays: Any = [_as_array(image) for image in images]
        if len({array.shape for array in arrays}) == 1:
            arrays = np.stack(arrays)
        self.call_destination("log_images", arrays, key, channels_last, step)

    def log_table(
        self,
        key: str,
        columns: Sequence[str] | None = None,
        data: Sequence[Sequence[Any]] | None = None,
        dataframe: Any = None,
        step: int | None = None,
    ) -> None:
        """Log a table, of columns and rows or of a data frame."""
        if dataframe is not None:
            columns, data = list(dataframe.columns), dataframe.to_numpy().tolist()
        rows = [list(row) for row in data or ()]
        self.call_destination("log_table", list(columns or ()), rows, key, step)


def _as_array(image: Any) -> np.ndarray[Any, Any]:
    return image.detach().cpu().numpy() if isinstance(image, torch.Tensor) else np.asarray(image)
