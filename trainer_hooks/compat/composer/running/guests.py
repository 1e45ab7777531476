"""Guests: Composer's callbacks in a trainer of trainer_hooks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.compat.composer.core.callback import Callback
from trainer_hooks.compat.composer.core.device import Device
from trainer_hooks.compat.composer.core.engine import Engine
from trainer_hooks.compat.composer.core.event import Event
from trainer_hooks.compat.composer.core.precision import Precision
from trainer_hooks.compat.composer.core.state import State
from trainer_hooks.compat.composer.loggers.destination import LoggerDestination
from trainer_hooks.compat.composer.loggers.logger import Logger
from trainer_hooks.compat.composer.running.evaluations import EvaluationEvents
from trainer_hooks.compat.composer.running.links import Links
from trainer_hooks.compat.composer.running.predictions import PredictionEvents
from trainer_hooks.compat.composer.running.training import TrainingEvents

if TYPE_CHECKING:
    from trainer_hooks.context import Trainer

__all__ = ["events_of", "join"]

_DEVICES = {"cuda": "gpu"}
_PRECISIONS = {"16-mixed": Precision.AMP_FP16, "bf16-mixed": Precision.AMP_BF16}


class _Through(LoggerDestination):
    """Hand what is logged to the loggers of a trainer of trainer_hooks.

    Args:
        trainer: it.
    """

    def __init__(self, trainer: Trainer) -> None:
        super().__init__()
        self._trainer = trainer

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        """Hand values to the loggers and the history."""
        self._trainer.log_metrics(metrics, step)

    def log_hyperparameters(self, hyperparameters: dict[str, Any]) -> None:
        """Hand hyperparameters to the loggers."""
        for logger in self._trainer.loggers:
            logger.log_hyperparams(hyperparameters)

    def log_table(
        self,
        columns: list[str],
        rows: list[list[Any]],
        name: str = "Table",
        step: int | None = None,
    ) -> None:
        """Hand a table to the loggers."""
        for logger in self._trainer.loggers:
            logger.log_table(name, columns, rows, step=step)

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
        """Hand images to the loggers."""
        for logger in self._trainer.loggers:
            logger.log_images(images, name, channels_last, step)


def events_of(links: Links) -> list[Any]:
    """Return the callbacks of trainer_hooks that fire Composer's events."""
    return [TrainingEvents(links), EvaluationEvents(links), PredictionEvents(links)]


def join(trainer: Trainer) -> None:
    """Make sure that a trainer's callbacks of Composer's are told of its events."""
    theirs = [one for one in trainer.callbacks if isinstance(one, Callback)]
    known = next((one for one in trainer.callbacks if isinstance(one, TrainingEvents)), None)
    if known is None:
        state = State(
            trainer.module,
            "run",
            device=Device(_DEVICES.get(trainer.device.type, trainer.device.type)),
            precision=_PRECISIONS.get(trainer.precision, Precision.FP32),
            callbacks=theirs,
        )
        destinations = [one for one in theirs if isinstance(one, LoggerDestination)]
        engine = Engine(state, Logger(state, [_Through(trainer), *destinations]))
        state.bind(trainer.stop)
        for one in events_of(Links(engine, is_guest=True)):
            trainer.add_callback(one)
        engine.run_event(Event.INIT)
    elif known.links.is_guest:
        for one in theirs:
            if one not in known.state.callbacks:
                known.links.engine.take_in(one)
