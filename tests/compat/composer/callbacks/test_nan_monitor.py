from __future__ import annotations

import math

import pytest

from trainer_hooks import Callback
from trainer_hooks.callbacks import FreeOutputs
from trainer_hooks.compat.composer.callbacks import NaNMonitor


@pytest.fixture
def Broken(Tiny):
    class Broken(Tiny):
        """Its loss is `value` in the second batch."""

        value = math.nan

        def training_step(self, batch, batch_idx):
            loss = super().training_step(batch, batch_idx)
            return loss + self.value if batch_idx == 1 else loss

    return Broken


def test_nan_is_raised_before_its_step(quiet_trainer, Broken, batches):
    """A NaN ends the run with a RuntimeError before a step is made with it."""
    module = Broken()
    with pytest.raises(RuntimeError, match="the train loss is NaN at step 1"):
        quiet_trainer(callbacks=[NaNMonitor()]).fit(module, batches())
    assert all(bool(p.isfinite().all()) for p in module.parameters())


def test_infinity_is_let_pass(quiet_trainer, Broken, batches):
    """An infinite loss is no NaN."""
    module = Broken()
    module.value = math.inf
    trainer = quiet_trainer(callbacks=[NaNMonitor()])
    trainer.fit(module, batches())
    assert trainer.global_step == 4


class Watcher(Callback):
    """Notes what it is given."""

    def __init__(self):
        self.given = []

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.given.append(outputs)


@pytest.mark.parametrize("is_freed", [True, False])
def test_outputs_are_let_go(quiet_trainer, Tiny, batches, is_freed):
    """With FreeOutputs others are given the loss alone, and the rest is let go."""

    class Returning(Tiny):
        def training_step(self, batch, batch_idx):
            return {"loss": super().training_step(batch, batch_idx), "scores": batch}

    watcher = Watcher()
    callbacks = [watcher, FreeOutputs()] if is_freed else [watcher]
    quiet_trainer(callbacks=callbacks).fit(Returning(), batches(2))
    names = {"loss"} if is_freed else {"loss", "scores"}
    assert [set(outputs) for outputs in watcher.given] == [names] * 2
