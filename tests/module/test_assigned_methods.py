"""Methods that are assigned to a module in a run: steps and hooks."""

from __future__ import annotations

import pytest
import torch
from quiet_trainers import QUIET_OPTIONS
from torch.utils.data import DataLoader

import trainer_hooks

QUIET = {**QUIET_OPTIONS, "max_epochs": 2}


class Net(trainer_hooks.Module):
    """One that assigns methods in the hook `place`, and notes which are called."""

    def __init__(self, place: str, automatic: bool = True) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
        self.place, self.called = place, []
        self.automatic_optimization = automatic

    def assign(self, place):
        if place == self.place:
            self.training_step = self.other_step
            if place != "on_train_epoch_start":
                self.on_train_end = lambda: self.called.append("end")

    def setup(self, stage):
        self.assign("setup")

    def configure_model(self):
        self.assign("configure_model")

    def on_fit_start(self):
        self.assign("on_fit_start")

    def on_train_epoch_start(self):
        if self.current_epoch == 1:
            self.assign("on_train_epoch_start")

    def training_step(self, batch, batch_idx):
        self.called.append("class")
        return self.layer(batch).sum()

    def other_step(self, batch):
        self.called.append("other")
        return self.layer(batch).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


def fit(module, **options):
    trainer_hooks.Trainer(**QUIET, **options).fit(module, DataLoader(torch.ones(2, 2)))
    return module.called


@pytest.mark.parametrize("automatic", [True, False])
@pytest.mark.parametrize("place", ["setup", "configure_model", "on_fit_start"])
def test_methods_assigned_before_the_training_are_called(place, automatic):
    """A step with fewer arguments, and a hook that the class has not."""
    assert fit(Net(place, automatic)) == ["other"] * 4 + ["end"]


@pytest.mark.parametrize("automatic", [True, False])
def test_a_step_assigned_as_an_epoch_starts_is_called_from_then_on(automatic):
    """It is called in the first batch of that epoch."""
    module = Net("on_train_epoch_start", automatic)
    assert fit(module) == ["class", "class", "other", "other"]


def test_a_step_is_assigned_with_an_optimizer_that_evaluates_the_loss_itself():
    """The closure runs the new step."""

    class WithLBFGS(Net):
        def configure_optimizers(self):
            return torch.optim.LBFGS(self.parameters(), lr=0.01, max_iter=1)

    assert fit(WithLBFGS("on_train_epoch_start")) == ["class", "class", "other", "other"]
