"""OptunaPruning: report a metric to an Optuna trial, and stop a pruned training."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from trainer_hooks.callback import Callback
from trainer_hooks.connector.state_types import checks_state
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

    State: whether the trial was pruned, and the reported values by step. A resumed run reports them
    to its trial, which is another one where Optuna retries a lost trial; a pruned one stops again.
    """

    renews_stop: ClassVar[bool] = True

    def __init__(self, trial: OptunaTrial, monitor: str) -> None:
        self.trial = trial
        self.monitor = monitor
        self.is_pruned = False
        self._reports: dict[int, float] = {}

    @property
    def state_key(self) -> str:
        """The class name with the monitor."""
        return self._generate_state_key(monitor=self.monitor)

    def state_dict(self) -> dict[str, Any]:
        """Return whether the trial was pruned, and the reported values by step."""
        return {"is_pruned": self.is_pruned, "reports": dict(self._reports)}

    @checks_state({"is_pruned": bool, "reports": dict[int, float]})
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore whether the trial was pruned, and the reported values."""
        self.is_pruned = state_dict["is_pruned"]
        self._reports = dict(state_dict["reports"])

    def on_train_start(self, trainer: Trainer, module: Module) -> None:  # noqa: ARG002
        """Report the restored values, and stop if the trial was pruned before."""
        # several trainings from the start may share a trial, as those of a cross-validation
        if trainer.progress.is_new_training or not trainer.is_global_zero:
            return
        with warnings.catch_warnings():
            # the trial has them unless it is a retry, and a pruner goes by all of them
            warnings.filterwarnings("ignore", ".*already reported")
            for step, value in self._reports.items():
                self.trial.report(value, step)
        if self.is_pruned:
            self._stop(trainer)

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
        value, step = float(metrics[self.monitor]), trainer.global_step
        self.trial.report(value, step)
        self._reports[step] = value
        if self.trial.should_prune():
            self.is_pruned = True
            self._stop(trainer)

    def raise_if_pruned(self) -> None:
        """Raise Optuna's error if the trial was pruned.

        Raises:
            TrialPruned: the trial was pruned.
        """
        if self.is_pruned:
            from optuna import TrialPruned

            raise TrialPruned(f"trial {self.trial.number}, by {self.monitor}")

    def _stop(self, trainer: Trainer) -> None:
        trainer.stop(f"trial {self.trial.number} was pruned")
