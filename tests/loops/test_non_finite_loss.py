"""A loss that is NaN or infinite causes one warning, and no step waits for the check."""

from __future__ import annotations

import contextlib
import math
import warnings

import pytest
import torch
from torch import Tensor

from trainer_hooks import Callback, TrainerHooksWarning
from trainer_hooks.callbacks import NaNGuard
from trainer_hooks.compat.accelerated.callbacks import TerminateOnNaNCallback
from trainer_hooks.compat.composer.callbacks import NaNMonitor
from trainer_hooks.errors import NonFiniteError, UsageError
from trainer_hooks.loggers import InMemoryLogger


@pytest.fixture
def Broken(Tiny):
    """A module whose loss is no number from a batch on."""

    class Broken(Tiny):
        def __init__(self, value=math.nan, first=2) -> None:
            super().__init__()
            self.value, self.first = value, first

        def training_step(self, batch, batch_idx):
            loss = super().training_step(batch, batch_idx)
            self.log("loss", loss)
            return loss * self.value if self.global_step >= self.first else loss

    return Broken


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("options", [{}, {"callbacks": Callback()}, {"microbatch_size": 1}])
def test_at_the_end_of_an_epoch(value, options, Broken, quiet_trainer, batches) -> None:
    """One warning says the place, and names the callback that guards against it."""
    with pytest.warns(TrainerHooksWarning) as caught:
        quiet_trainer(max_epochs=3, **options).fit(Broken(value), batches(4))
    (told,) = caught
    assert "the training loss is " in str(told.message)
    assert "in epoch 0, at optimizer step 4" in str(told.message)
    assert "NaNGuard()" in str(told.message)


def test_where_loggers_are_due(Broken, quiet_trainer, batches) -> None:
    """Where values are copied for loggers, the loss is looked at then and there."""

    class Listens(Callback):
        def on_train_batch_end(self, *args):
            pass

    trainer = quiet_trainer(logger=InMemoryLogger(), log_every_n_steps=3, callbacks=Listens())
    with pytest.warns(TrainerHooksWarning, match="in epoch 0, at optimizer step 3"):
        trainer.fit(Broken(), batches(8))


def test_where_the_steps_end(Broken, quiet_trainer, batches) -> None:
    """The last loss of a run that ends inside an epoch is looked at, where there is one."""

    class Listens(Callback):
        def on_train_batch_end(self, *args):
            pass

    trainer = quiet_trainer(max_steps=5, callbacks=Listens())
    with pytest.warns(TrainerHooksWarning, match="at optimizer step 5"):
        trainer.fit(Broken(), batches(8))


@pytest.mark.parametrize("guard", [NaNGuard, NaNMonitor, TerminateOnNaNCallback])
def test_guarded(guard, Broken, quiet_trainer, batches) -> None:
    """There is no warning beside a callback that checks the loss itself."""
    with warnings.catch_warnings(action="error"), contextlib.suppress(NonFiniteError, UsageError):
        quiet_trainer(callbacks=guard()).fit(Broken(), batches(4))


def test_no_step_reads_the_loss(Tiny, quiet_trainer, batches, monkeypatch) -> None:
    """Without loggers the loss is read once an epoch, and in no step."""
    seen = []
    read = Tensor.__float__
    monkeypatch.setattr(torch.Tensor, "__float__", lambda self: seen.append(1) or read(self))
    quiet_trainer(max_epochs=3).fit(Tiny(), batches(8))
    assert len(seen) == 3
