"""GuestLogger: Composer's Logger, which hands on to a trainer; it needs Composer to be imported."""

from __future__ import annotations

from typing import Any

from composer.loggers import Logger, LoggerDestination

from trainer_hooks.adapters.composer.destinations import DestinationGuest
from trainer_hooks.adapters.views import lacking

__all__ = ["GuestLogger"]


class GuestLogger(Logger):  # type: ignore[misc]
    """Log to the loggers and the history of a trainer, and to destinations that are guests.

    Args:
        state: the state that guests are given.
        trainer: whose loggers.
    """

    destinations: tuple[Any, ...]

    def __init__(self, state: Any, trainer: Any) -> None:
        super().__init__(state, (_Through(trainer),))
        self._trainer = trainer

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Log values at a step, the batches that are trained; destinations hear of it as others."""
        at = self._state.timestamp.batch.value if step is None else step
        self._trainer.log_metrics(metrics, at)

    def take_in(self, destination: LoggerDestination) -> None:
        """Let a destination have what else is logged."""
        if destination not in self.destinations:
            self.destinations += (destination,)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise lacking("Logger", "Composer", name)


class _Through(LoggerDestination):  # type: ignore[misc]
    """Hand tables, images and hyperparameters to the loggers of a trainer.

    Args:
        trainer: it.
    """

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer

    def log_hyperparameters(self, hyperparameters: dict[str, Any]) -> None:
        """Hand hyperparameters on."""
        for logger in self._loggers():
            logger.log_hyperparams(hyperparameters)

    def log_table(
        self,
        columns: list[str],
        rows: list[list[Any]],
        name: str = "Table",
        step: int | None = None,
    ) -> None:
        """Hand a table on."""
        for logger in self._loggers():
            logger.log_table(name, columns, rows, step=step)

    def log_images(
        self,
        images: Any,
        name: str = "Images",
        channels_last: bool = False,
        step: int | None = None,
        masks: Any = None,  # noqa: ARG002 - theirs
        mask_class_labels: Any = None,  # noqa: ARG002 - theirs
        use_table: bool = True,  # noqa: ARG002 - theirs
    ) -> None:
        """Hand images on, without their masks."""
        for logger in self._loggers():
            logger.log_images(images, name, channels_last, step)

    def _loggers(self) -> list[Any]:
        """Return those that are no destinations, which are told by themselves."""
        loggers = self._trainer.loggers
        return [logger for logger in loggers if not isinstance(logger, DestinationGuest)]
