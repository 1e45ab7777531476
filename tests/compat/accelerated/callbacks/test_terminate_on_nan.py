"""TerminateOnNaNCallback in runs."""

from __future__ import annotations

import math

import torch

from trainer_hooks.callbacks import NaNGuard
from trainer_hooks.compat.accelerated.callbacks import TerminateOnNaNCallback
from trainer_hooks.testing import TinyModule


def test_it_is_a_guard() -> None:
    """It is that callback, with other arguments."""
    assert issubclass(TerminateOnNaNCallback, NaNGuard)


def test_a_broken_training_loss_ends_the_run_in_order(trained) -> None:
    """The fit returns, its end hooks fire, the steps after it are not made, and it says why."""

    class Broken(TinyModule):
        def loss(self, outputs, batch):
            loss = super().loss(outputs, batch)
            return loss * math.nan if self.trainer.global_step == 4 else loss

    trainer = trained(TerminateOnNaNCallback(), Broken(), log_every_n_steps=1)
    assert trainer.global_step == 4
    assert "NaN or infinite" in trainer.stop_reason
    assert not trainer.interrupted


def test_a_broken_validation_loss_ends_the_run_in_order(trained) -> None:
    """What a validation step returns is looked at too."""

    class Broken(TinyModule):
        def validation_step(self, batch, batch_idx):
            return {"loss": torch.tensor(math.inf)}

        def on_validation_batch_end(self, outputs, batch, batch_idx):
            pass

    trainer = trained(TerminateOnNaNCallback(), Broken())
    assert trainer.progress.epochs_completed == 1
    assert "validation loss" in trainer.stop_reason


def test_a_resumed_run_ends_for_the_reason_that_it_had_ended_for(trained, bare, tmp_path) -> None:
    """It names the epoch in which the loss was broken, and not the one that would come."""

    class Broken(TinyModule):
        def validation_step(self, batch, batch_idx):
            return {"loss": torch.tensor(math.inf)}

        def on_validation_batch_end(self, outputs, batch, batch_idx):
            pass

    ended = trained(TerminateOnNaNCallback(), Broken())
    ended.save_checkpoint(tmp_path / "end.ckpt")
    resumed = bare(TerminateOnNaNCallback(), max_epochs=5)
    resumed.fit(Broken(), ckpt_path=tmp_path / "end.ckpt")
    assert resumed.stop_reason == ended.stop_reason
    assert resumed.global_step == ended.global_step


def test_a_broken_loss_of_the_default_validation_step_ends_the_run(trained) -> None:
    """A module with `forward` and `loss` alone returns no loss, and it is looked at anyway."""

    class Broken(TinyModule):
        def loss(self, outputs, batch):
            return super().loss(outputs, batch) * (1.0 if self.training else math.nan)

    trainer = trained(TerminateOnNaNCallback(), Broken())
    assert trainer.progress.epochs_completed == 1
    assert trainer.stop_reason == "the validation loss is NaN or infinite (epoch 0)"


def test_the_reason_is_the_loss_that_was_broken_first(trained) -> None:
    """A NaN of the training breaks the validation after it too; the training's is the reason."""

    class Broken(TinyModule):
        def loss(self, outputs, batch):
            return super().loss(outputs, batch) * math.nan

    trainer = trained(TerminateOnNaNCallback(), Broken())
    assert trainer.stop_reason == "the training loss is NaN or infinite (epoch 0)"


def test_a_guard_can_end_the_run_in_order(trained) -> None:
    """NaNGuard("stop") does so for what it looks at, here the gradients too."""

    class Broken(TinyModule):
        def loss(self, outputs, batch):
            return super().loss(outputs, batch) * math.nan

    guard = NaNGuard("stop", check=["gradients", "parameters"], check_every_n_steps=1)
    trainer = trained(guard, Broken())
    assert trainer.global_step == 0
    assert trainer.stop_reason == "the gradients hold NaN or infinity (epoch 0)"
    assert guard.events[0]["action"] == "stop"
