"""OptunaPruning: what it reports, and that a pruned trial ends in order."""

from __future__ import annotations

import pytest
from quiet_trainers import QUIET_OPTIONS

from trainer_hooks import Trainer
from trainer_hooks.cli.run.optuna_pruning import OptunaPruning
from trainer_hooks.errors import MetricError

OFF = {**QUIET_OPTIONS, "max_epochs": 5}


class Trial:
    """A trial that is pruned at its second report."""

    number = 7

    def __init__(self, at: int) -> None:
        self.reports: list = []
        self.at = at

    def report(self, value: float, step: int) -> None:
        self.reports.append((value, step))

    def should_prune(self) -> bool:
        return len(self.reports) == self.at


@pytest.fixture
def train(here):
    """Train with a trial, and return trainer and callback."""
    import configured

    def train(trial, monitor="val_loss"):
        pruning = OptunaPruning(trial, monitor)
        trainer = Trainer(callbacks=[pruning], **OFF)
        trainer.fit(configured.Trained(), datamodule=configured.Points())
        return trainer, pruning

    return train


def test_a_pruned_trial_ends_in_order(train) -> None:
    """Each validation but the sanity check is reported; where it is pruned, training stops."""
    optuna = pytest.importorskip("optuna")
    trial = Trial(at=2)
    trainer, pruning = train(trial)
    assert [step for _, step in trial.reports] == [4, 8]
    assert trainer.current_epoch == 2
    assert "trial 7 was pruned" in trainer.stop_reason
    with pytest.raises(optuna.TrialPruned, match="trial 7, by val_loss"):
        pruning.raise_if_pruned()


def test_a_trial_that_is_not_pruned_trains_on(train) -> None:
    """Without a word of the trial all epochs are trained, and nothing is raised."""
    trial = Trial(at=99)
    trainer, pruning = train(trial)
    pruning.raise_if_pruned()
    assert trainer.current_epoch == 5
    assert len(trial.reports) == 5


def test_a_metric_that_was_not_logged_is_an_error(train) -> None:
    """A misspelt monitor is told with the nearest name."""
    with pytest.raises(MetricError, match="Did you mean 'val_loss'"):
        train(Trial(at=1), "val_los")
