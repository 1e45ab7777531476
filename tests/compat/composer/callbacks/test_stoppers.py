"""Composer's two stoppers."""

from __future__ import annotations

import math

import pytest
import torch
from quiet_trainers import QUIET_OPTIONS

from trainer_hooks import Evaluator, Time, Trainer
from trainer_hooks.compat.composer.callbacks import EarlyStopper, ThresholdStopper
from trainer_hooks.errors import MetricError
from trainer_hooks.testing import TinyModule


class Scripted(TinyModule):
    """Logs given values: of the validation one a run, of the training one an epoch."""

    def __init__(self, values):
        super().__init__()
        self.values = values

    def on_validation_epoch_end(self):
        if not self.trainer.sanity_checking:
            self.log("score", self.values[self.trainer.current_epoch])

    def on_train_batch_end(self, outputs, batch, batch_idx):
        self.log("train_score", self.values[self.trainer.current_epoch])


class OfTwo(TinyModule):
    """Takes two validation loaders."""

    def validation_step(self, batch, batch_idx, dataloader_idx=0):
        self.log("val_loss", float(dataloader_idx))

    def on_validation_batch_end(self, outputs, batch, batch_idx, dataloader_idx=0):
        pass


def trained(folder, values, stopper, **options):
    trainer = Trainer(
        default_root_dir=folder, callbacks=[stopper], **QUIET_OPTIONS,
        **{"max_epochs": len(values), **options},
    )  # fmt: skip
    trainer.fit(Scripted(values))
    return trainer


@pytest.mark.parametrize(
    ("name", "comp", "epochs"),
    [
        ("score", None, 3),
        ("score", "gt", 3),
        ("score", "less", 1),
        ("score", torch.less, 1),
        ("score", lambda value, bound: value >= bound, 2),
    ],
)
def test_a_threshold_stops_once_it_is_passed(tmp_path, name, comp, epochs):
    """It stops after the validation whose value passes the threshold, strictly by default."""
    stopper = ThresholdStopper(name, "eval", 0.5, comp=comp)
    trainer = trained(tmp_path, [0.4, 0.5, 0.6, 0.7], stopper)
    assert trainer.progress.epochs_completed == epochs
    assert stopper.stopping_value == pytest.approx([0.4, 0.5, 0.6][epochs - 1])


def test_smaller_losses_are_better_by_their_name():
    """Without comp the name decides, as in Composer."""
    assert ThresholdStopper("Val_Loss", "eval", 1).comp is torch.lt
    assert EarlyStopper("perplexity", "eval").comp is torch.lt
    assert EarlyStopper("accuracy", "eval").comp is torch.gt


def test_a_metric_of_the_training_stops_at_the_epochs_end_or_a_batch(tmp_path):
    """stop_on_batch=True stops within the epoch, otherwise it is at its end."""
    late = trained(tmp_path, [1.0, 1.0], ThresholdStopper("train_score", "train", 0.5))
    stopper = ThresholdStopper("train_score", "train", 0.5, stop_on_batch=True)
    early = trained(tmp_path, [1.0, 1.0], stopper)
    assert late.progress.epochs_completed == 1
    assert 0 < early.progress.batches_completed < late.progress.batches_completed


@pytest.mark.parametrize(
    ("values", "options", "epochs"),
    [
        ([1.0, 2.0, 1.0, 1.0, 1.0, 1.0], {}, 4),
        ([1.0, 2.0, 1.0, 1.0, 1.0, 1.0], {"patience": 0}, 3),
        ([1.0, 2.0, 1.0, 1.0, 1.0, 1.0], {"patience": "2ep"}, 5),
        ([1.0, 2.0, 1.0, 1.0, 1.0, 1.0], {"patience": Time(3, "ep")}, 6),
        ([1.0, 1.1, 1.2, 1.3, 1.4, 1.5], {"min_delta": 0.15}, 6),
        ([1.0, 1.1, 1.1, 1.1, 1.1, 1.1], {"min_delta": 0.15}, 3),
        ([3.0, 2.0, 1.0, 1.0, 1.0, 1.0], {"comp": "lt"}, 5),
        ([math.nan, 2.0, 3.0, 4.0, 5.0, 6.0], {}, 6),
        ([2.0, math.nan, math.nan, math.nan, 1.0, 1.0], {}, 3),
    ],
)
def test_it_stops_when_the_best_is_older_than_the_patience(tmp_path, values, options, epochs):
    """The stop comes as more than the patience has passed; NaN is beaten and beats nothing."""
    trainer = trained(tmp_path, values, EarlyStopper("score", "eval", **options))
    assert trainer.progress.epochs_completed == epochs


def test_a_patience_in_batches_counts_batches(tmp_path):
    """A metric of the training is looked at after each batch, and stops within an epoch."""
    stopper = EarlyStopper("train_score", "train", patience="1ba")
    trainer = trained(tmp_path, [1.0] * 4, stopper)
    assert trainer.progress.batches_completed == 3
    assert stopper.is_stopped
    assert "did not improve in" in trainer.stop_reason


def test_a_resumed_run_remembers_the_best(tmp_path):
    """What Composer's forgets: the best value and when it was seen come back with a resume."""
    values = [5.0, 1.0, 1.0, 1.0]
    first = trained(tmp_path, values, EarlyStopper("score", "eval"), max_epochs=2)
    first.save_checkpoint(tmp_path / "cut.pt")
    stopper = EarlyStopper("score", "eval")
    trainer = Trainer(default_root_dir=tmp_path, callbacks=[stopper], **QUIET_OPTIONS, max_epochs=4)
    trainer.fit(Scripted(values), ckpt_path=tmp_path / "cut.pt")
    assert trainer.progress.epochs_completed == 3
    assert stopper.best == 5.0


def test_the_metric_of_an_evaluator_is_found_by_its_label(tmp_path):
    """A label chooses the evaluator's metric."""
    module = OfTwo()
    loaders = [Evaluator(label, module.val_dataloader()) for label in ("easy", "hard")]
    stopper = ThresholdStopper("val_loss", "hard", 0.5, comp="gt")
    trainer = Trainer(default_root_dir=tmp_path, callbacks=[stopper], **QUIET_OPTIONS, max_epochs=3)
    trainer.fit(module, module.train_dataloader(), loaders)
    assert trainer.progress.epochs_completed == 1
    assert stopper.stopping_value == 1.0


@pytest.mark.parametrize("label", ["train", "eval"])
def test_a_metric_that_is_never_logged_is_an_error(tmp_path, label):
    """A monitor that was not logged is a MetricError that lists what was."""
    with pytest.raises(MetricError, match=r"monitor 'scor' of ThresholdStopper.*'score'"):
        trained(tmp_path, [1.0], ThresholdStopper("scor", label, 0.5))
