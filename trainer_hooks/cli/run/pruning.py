"""OptunaPruning: report a metric to a trial of Optuna, and end the training that it prunes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from trainer_hooks.callback import Callback
from trainer_hooks.errors import MetricError, nearest

if TYPE_CHECKING:
    from trainer_hooks.module import Module
    from trainer_hooks.trainer import Trainer

__all__ = ["OptunaPruning"]


class Trial(Protocol):
    """What is asked of a trial."""

    number: int

    def report(self, value: float, step: int) -> None:
        """Take a value."""

    def should_prune(self) -> bool:
        """Return whether the trial is to end."""


class OptunaPruning(Callback):
    """Report a metric to a trial of Optuna after each validation, and stop where it is pruned.

    The training ends in order, with its checkpoint and its report. Call `raise_if_pruned` after it,
    so that Optuna counts the trial as pruned.

    Args:
        trial: the trial.
        monitor: the metric that the study goes by.

    Attributes:
        is_pruned: whether the trial was.
    """

    def __init__(self, trial: Trial, monitor: str) -> None:
        self.trial = trial
        self.monitor = monitor
        self.is_pruned = False

    def on_validation_end(self, trainer: Trainer, module: Module) -> None:  # noqa: ARG002
        """Report the metric, and ask whether the trial goes on.

        Raises:
            MetricError: it was not logged.
        """
        if trainer.sanity_checking:
            return
        metrics = trainer.callback_metrics
        if self.monitor not in metrics:
            raise MetricError(
                f"monitor {self.monitor!r} of OptunaPruning: it was not logged."
                f"{nearest(self.monitor, metrics)} Log it in validation_step."
            )
        self.trial.report(float(metrics[self.monitor]), trainer.global_step)
        if self.trial.should_prune():
            self.is_pruned = True
            trainer.stop(f"trial {self.trial.number} was pruned")

    def raise_if_pruned(self) -> None:
        """Tell Optuna.

        Raises:
            TrialPruned: the trial was pruned.
        """
        if self.is_pruned:
            from optuna import TrialPruned

            raise TrialPruned(f"trial {self.trial.number}, by {self.monitor}")
