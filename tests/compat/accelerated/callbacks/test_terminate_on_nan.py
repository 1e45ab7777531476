"""TerminateOnNaNCallback in runs."""

from __future__ import annotations

import math

import pytest
import torch

from trainer_hooks.callbacks import NaNGuard
from trainer_hooks.compat.accelerated.callbacks import TerminateOnNaNCallback
from trainer_hooks.testing import TinyModule


class InStepFour(TinyModule):
    """Has a broken training loss in its fifth step."""

    def loss(self, outputs, batch):
        loss = super().loss(outputs, batch)
        return loss * math.nan if self.trainer.global_step == 4 else loss


class Validated(TinyModule):
    """Returns an infinite loss of its own validation step."""

    def validation_step(self, batch, batch_idx):
        return {"loss": torch.tensor(math.inf)}

    def on_validation_batch_end(self, outputs, batch, batch_idx):
        pass


class InEvaluation(TinyModule):
    """Has a broken loss in the default validation step, which returns none."""

    def loss(self, outputs, batch):
        return super().loss(outputs, batch) * (1.0 if self.training else math.nan)


class Always(TinyModule):
    """Has a broken loss in training, and in the validation after it."""

    def loss(self, outputs, batch):
        return super().loss(outputs, batch) * math.nan


def test_it_is_a_guard() -> None:
    """It is that callback, with other arguments."""
    assert issubclass(TerminateOnNaNCallback, NaNGuard)


@pytest.mark.parametrize(
    ("module", "steps", "reason"),
    [
        (InStepFour, 4, "the training loss is NaN or infinite (epoch 1)"),
        (Validated, 3, "the validation loss is NaN or infinite (epoch 0)"),
        (InEvaluation, 3, "the validation loss is NaN or infinite (epoch 0)"),
        (Always, 0, "the training loss is NaN or infinite (epoch 0)"),
    ],
)
def test_a_broken_loss_ends_the_run_in_order(trained, module, steps, reason) -> None:
    """The fit returns, makes no step after it, and gives the loss that was broken first."""
    trainer = trained(TerminateOnNaNCallback(), module(), log_every_n_steps=1)
    assert (trainer.global_step, trainer.stop_reason) == (steps, reason)
    assert not trainer.interrupted


def test_a_resumed_run_ends_for_the_reason_that_it_had_ended_for(trained, bare, tmp_path) -> None:
    """It names the epoch in which the loss was broken, and not the one that would come."""
    ended = trained(TerminateOnNaNCallback(), Validated())
    ended.save_checkpoint(tmp_path / "end.ckpt")
    resumed = bare(TerminateOnNaNCallback(), max_epochs=5)
    resumed.fit(Validated(), ckpt_path=tmp_path / "end.ckpt")
    assert resumed.stop_reason == ended.stop_reason
    assert resumed.global_step == ended.global_step


def test_a_guard_can_end_the_run_in_order(trained) -> None:
    """NaNGuard("stop") does so for what it looks at, here the gradients too."""
    guard = NaNGuard("stop", check=["gradients", "parameters"], check_every_n_steps=1)
    trainer = trained(guard, Always())
    assert trainer.global_step == 0
    assert trainer.stop_reason == "the gradients hold NaN or infinity (epoch 0)"
    assert guard.events[0]["action"] == "stop"
