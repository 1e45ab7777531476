"""Schedulers that a callback puts in or takes out in the middle of a fit."""

from __future__ import annotations

import pytest
import torch
from torch.optim.lr_scheduler import LambdaLR

from trainer_hooks import Callback, Module
from trainer_hooks.module.optimization import LRSchedulerConfig


class Net(Module):
    """A layer without a scheduler."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch, batch_idx):
        return self.layer(batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


class WarmUp(Callback):
    """Puts a scheduler in for the first steps, and notes the learning rate of each."""

    def __init__(self, hook: str, steps: int = 4) -> None:
        self.hook, self.steps, self.rates = hook, steps, []

    def put_in(self, trainer) -> None:
        (optimizer,) = trainer.optimizers
        schedule = LambdaLR(optimizer, lambda step: step / self.steps)
        trainer.lr_scheduler_configs.append(LRSchedulerConfig(schedule, interval="step"))

    def on_fit_start(self, trainer, module) -> None:
        if self.hook == "on_fit_start":
            self.put_in(trainer)

    def on_train_start(self, trainer, module) -> None:
        if self.hook == "on_train_start":
            self.put_in(trainer)

    def on_train_batch_start(self, trainer, module, batch, batch_idx) -> None:
        if self.hook == "on_train_batch_start" and trainer.global_step == 0:
            self.put_in(trainer)
        self.rates.append(trainer.optimizers[0].param_groups[0]["lr"])
        if trainer.global_step == self.steps:
            trainer.lr_scheduler_configs.clear()


@pytest.mark.parametrize("hook", ["on_fit_start", "on_train_start", "on_train_batch_start"])
def test_a_scheduler_that_a_callback_puts_in_steps(bare, hook: str) -> None:
    """Also where the module has none; one that is taken out steps no more."""
    warm_up = WarmUp(hook)
    bare(callbacks=[warm_up], max_epochs=2).fit(Net(), list(torch.ones(4, 2, 1)))
    assert warm_up.rates == pytest.approx([0.0, 0.025, 0.05, 0.075, 0.1, 0.1, 0.1, 0.1])
