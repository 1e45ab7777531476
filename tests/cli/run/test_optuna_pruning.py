"""OptunaPruning: what it reports, and that a pruned trial ends in order."""

from __future__ import annotations

import gc

import pytest
import torch
from quiet_trainers import QUIET_OPTIONS

from trainer_hooks import Trainer
from trainer_hooks.callbacks import ModelCheckpoint
from trainer_hooks.cli.run.optuna_pruning import OptunaPruning
from trainer_hooks.errors import MetricError, TrainerHooksWarning

OFF = {**QUIET_OPTIONS, "max_epochs": 5, "enable_checkpointing": True}


class Trial:
    """A trial that is pruned at its second report."""

    def __init__(self, at: int, number: int = 7) -> None:
        self.reports: list = []
        self.at = at
        self.number = number

    def report(self, value: float, step: int) -> None:
        self.reports.append((value, step))

    def should_prune(self) -> bool:
        return len(self.reports) == self.at


@pytest.fixture
def train(here):
    """Train with a trial, and return trainer and callback."""
    import configured

    def train(trial, monitor="val_loss", ckpt_path=None, **options):
        pruning = OptunaPruning(trial, monitor)
        saver = ModelCheckpoint("saved", "{epoch}", save_top_k=-1)
        # the seed of the weights: a retry that begins anew trains the same
        torch.manual_seed(1)
        trainer = Trainer(callbacks=[pruning, saver], **{**OFF, **options})
        trainer.fit(configured.Trained(), datamodule=configured.Points(), ckpt_path=ckpt_path)
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


@pytest.mark.filterwarnings("ignore:fit has nothing to do")
@pytest.mark.parametrize(("epoch", "limit"), [(1, 5), (1, 2), (1, 9), (0, 5)])
def test_a_retry_ends_as_the_trial_that_was_lost(train, epoch: int, limit: int) -> None:
    """It is pruned and has all reports, resumed from a checkpoint after the pruning or before.

    Optuna's word was about the trial, so another limit of the training does not take it back.
    """
    optuna = pytest.importorskip("optuna")
    lost = Trial(at=2)
    train(lost)
    # asked again, a pruner might say otherwise, as other trials have ended meanwhile
    retry = Trial(at=99 if epoch == 1 else 2, number=8)
    trainer, pruning = train(retry, ckpt_path=f"saved/epoch={epoch}.ckpt", max_epochs=limit)
    assert retry.reports == lost.reports
    assert trainer.global_step == 8
    with pytest.raises(optuna.TrialPruned, match="trial 8, by val_loss"):
        pruning.raise_if_pruned()


def test_a_trial_of_several_trainings_trains_each_whole(here) -> None:
    """As in a cross-validation: once pruned it stays so, and the next training is a full one."""
    import configured

    trial = Trial(at=2)
    pruning = OptunaPruning(trial, "val_loss")
    steps = []
    for _ in range(2):
        trainer = Trainer(callbacks=[pruning], **OFF)
        trainer.fit(configured.Trained(), datamodule=configured.Points())
        steps.append(trainer.global_step)
    assert steps == [8, 20]
    assert pruning.is_pruned
    assert len(trial.reports) == 7


def test_a_state_is_that_of_a_metric(train) -> None:
    """A retry that goes by another metric does not report the values of the former one."""
    train(Trial(at=2))
    retry = Trial(at=99)
    with pytest.warns(TrainerHooksWarning, match="no state for"):
        _, pruning = train(retry, "loss", ckpt_path="saved/epoch=1.ckpt")
    assert not pruning.is_pruned
    assert [step for _, step in retry.reports] == [12, 16, 20]


@pytest.mark.slow
@pytest.mark.posix
def test_a_pruned_training_of_two_forked_processes(train) -> None:
    """The process that forked them learns of the pruning, and of the stop with its reason."""
    trainer, pruning = train(Trial(at=2), strategy="ddp_fork", devices=2)
    assert pruning.is_pruned
    assert (trainer.should_stop, trainer.stop_reason) == (True, "trial 7 was pruned")


@pytest.mark.exhaustive
@pytest.mark.parametrize("at", [2, 99])
def test_it_keeps_the_contract_of_callbacks(at: int, callback_contract) -> None:
    """Its state too, wherever a training with it is cut."""
    gc.freeze()  # the forks' folder, which a collection in here would delete with a warning
    callback_contract(lambda: OptunaPruning(Trial(at), "val_loss"))


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
