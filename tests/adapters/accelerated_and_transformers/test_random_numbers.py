"""Callbacks of transformers leave the random numbers of a training alone."""

from __future__ import annotations

import random

import pytest
import torch
from quiet_trainers import QUIET_OPTIONS

import trainer_hooks


class Net(trainer_hooks.Module):
    """A layer that notes the next random number of Python in each step."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.drawn = []

    def training_step(self, batch, batch_idx):
        self.drawn.append(random.random())
        return self.layer(batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


@pytest.mark.slow
def test_arguments_that_draw_when_they_are_made(monkeypatch, tmp_path):
    """Their import loads whole packages in the first step, one of which draws."""
    transformers = pytest.importorskip("transformers")
    made = []

    arguments = transformers.TrainingArguments
    complete = arguments.__post_init__

    def draw(self):
        made.append(random.random())
        complete(self)

    monkeypatch.setattr(arguments, "__post_init__", draw)

    class AtStep(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            pass

    def fit(callbacks):
        random.seed(3)
        net = Net()
        trainer_hooks.Trainer(
            callbacks=callbacks, max_epochs=1, default_root_dir=tmp_path, **QUIET_OPTIONS,
        ).fit(net, list(torch.ones(3, 2, 1)))  # fmt: skip
        return net.drawn

    assert fit([AtStep()]) == fit([])
    assert len(made) == 1
