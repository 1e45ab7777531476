"""OptunaPruning: report a metric to an Optuna trial, and stop a pruned training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from trainer_hooks.callback import Callback
from trainer_hooks.errors import MetricError, did_you_mean

if TYPE_CHECKING:
    from trainer_hooks.module.module import Module
    from trainer_hooks.trainer.trainer import Trainer


class OptunaTrial(Protocol):
    """The methods of an Optuna trial that the callback uses."""

    @property
    def number(self) -> int:
        """The number of the trial in its study."""

    def report(self, value: float, step: int) -> None:
        """Report the metric's value at a step."""

    def should_prune(self) -> bool:
        """Return whether the trial should end."""


class OptunaPruning(Callback):
    """Report a metric to an Optuna trial after each validation, and stop a pruned training.

    The training ends in order, with its checkpoint and its report. Call `raise_if_pruned` after the
    training, so that Optuna counts the trial as pruned.

    Args:
        trial: the trial.
        monitor: the metric that the study optimizes.

    Attributes:
        is_pruned: whether the trial was pruned.
    """

    def __init__(self, trial: OptunaTrial, monitor: str) -> None:
        self.trial = trial
        self.monitor = monitor
        self.is_pruned = False

    def on_validation_end(self, trainer: Trainer, module: Module) -> None:  # noqa: ARG002
        """Report the metric, and stop if the trial is pruned.

        Raises:
            MetricError: the metric was not logged.
        """
        # before any training: Optuna would prune by the metric of a few batches. Of several ranks
        # one reports, and all stop with it.
        if trainer.sanity_checking or not trainer.is_global_zero:
            return
        metrics = trainer.callback_metrics
        if self.monitor not in metrics:
            raise MetricError(
                f"monitor {self.monitor!r} of OptunaPruning: it was not logged."
                f"{did_you_mean(self.monitor, metrics)} Log it in validation_step."
            )
        self.trial.report(float(metrics[self.monitor]), trainer.global_step)
        if self.trial.should_prune():
            self.is_pruned = True
            trainer.stop(f"trial {self.trial.number} was pruned")

    def raise_if_pruned(self) -> None:
        """Raise Optuna's error if the trial was pruned.

        Raises:
            TrialPruned: the trial was pruned.
        """
        if self.is_pruned:
            from optuna import TrialPruned

            raise TrialPruned(f"trial {self.trial.number}, by {self.monitor}")
