"""TrainerDestination: a logger destination of Composer that writes to a trainer's loggers."""

from __future__ import annotations

from typing import Any

from trainer_hooks.adapters.callback_adapter import HostedCallback

__all__ = ["TrainerDestination"]


class TrainerDestination:
    """Hand tables, images and hyperparameters of Composer's Logger to the loggers of a trainer.

    It has the methods of Composer's `LoggerDestination` and derives from none, so that it serves
    both Composer itself and `trainer_hooks.compat.composer`.

    Args:
        trainer: the trainer.
    """

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer

    def log_hyperparameters(self, hyperparameters: dict[str, Any]) -> None:
        """Log hyperparameters."""
        for logger in self._loggers():
            logger.log_hyperparams(hyperparameters)

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        """Log metrics to the loggers, the history and the callbacks' `on_log`."""
        self._trainer.log_metrics(metrics, step)

    def log_table(
        self,
        columns: list[str],
        rows: list[list[Any]],
        name: str = "Table",
        step: int | None = None,
    ) -> None:
        """Log a table."""
        for logger in self._loggers():
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
        for logger in self._loggers():
            logger.log_images(images, name, channels_last, step)

    def log_traces(self, traces: dict[str, Any]) -> None:
        """Drop the traces of algorithms, which have no place in the loggers."""

    def upload_file(self, *_: Any, **__: Any) -> None:
        """Keep no file."""

    def can_upload_files(self) -> bool:
        """Return False: no files are kept."""
        return False

    def _loggers(self) -> list[Any]:
        # an adapted destination among the loggers is also a destination of Composer's Logger, which
        # calls it itself
        loggers = self._trainer.loggers
        return [logger for logger in loggers if not isinstance(logger, HostedCallback)]
