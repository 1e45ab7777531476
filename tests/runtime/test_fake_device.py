"""What passes between host and device in a run, counted on a device that stands in for one."""

from __future__ import annotations

import pytest
import torch

from tests.runtime.fake_device import DEVICE, Place, StandIn
from trainer_hooks import Module
from trainer_hooks.callbacks import EarlyStopping

BATCHES = 12


class LogsInEachWay(Module):
    """Logs a loss in each way; its steps ask for no value."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def training_step(self, batch, batch_idx):
        loss = self.layer(batch["x"]).square().mean()
        self.log("loss", loss, on_step=True, on_epoch=True)
        self.log_dict({"twice": loss * 2, "thrice": loss * 3}, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.layer(batch["x"]).mean())

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.1)
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)]


@pytest.fixture
def run(bare, monkeypatch):
    """A function that fits a module on the device, and returns the counted copies."""
    monkeypatch.setattr("trainer_hooks.trainer.core.trainer_core.pick_device", lambda *_: DEVICE)

    def fit(*callbacks, module=None, **options) -> StandIn:
        place = Place()
        trainer = bare(place, *callbacks, max_epochs=2, **options)
        batches = [{"x": torch.ones(3, 4), "id": n} for n in range(BATCHES)]
        with StandIn(place) as counted:
            trainer.fit(module or LogsInEachWay(), batches, batches[:2])
        assert trainer.progress.batches_completed == 2 * BATCHES
        assert place.batch is None
        return counted

    return fit


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"gradient_clip_val": 1.0},
        {"gradient_clip_val": 0.1, "gradient_clip_algorithm": "value"},
        {"accumulate_grad_batches": 3},
        {"microbatch_size": 2},
        {"max_duration": "1h"},
    ],
    ids=str,
)
def test_no_step_waits_for_the_device(run, options) -> None:
    """In no batch does the host ask the device for a value; epochs and validations may."""
    counted = run(EarlyStopping("val_loss", patience=9), **options)
    assert set(counted.reads) == {None}


@pytest.mark.slow
def test_a_validation_inside_an_epoch_is_waited_for_as_it_begins(run) -> None:
    """Values of the epoch so far are copied after each fifth batch, and after no other."""
    counted = run(val_check_interval=5)
    assert set(counted.reads) <= {None, 4, 9, 16, 21}
    assert max(n for batch, n in counted.reads.items() if batch is not None) == 1


@pytest.mark.slow
def test_a_step_that_asks_is_counted(run) -> None:
    """The count sees a value that a module reads in its step, and at which batch."""

    class Asks(LogsInEachWay):
        def training_step(self, batch, batch_idx):
            loss = super().training_step(batch, batch_idx)
            if self.trainer.progress.batches_completed == 7:
                loss.item()
            return loss

    assert run(module=Asks()).reads[7] == 1


@pytest.mark.slow
def test_loggers_are_waited_for_where_they_are_due_alone(run, MemoryLogger) -> None:
    """With log_every_n_steps=5 the host asks in each fifth step, and in no other."""
    counted = run(logger=MemoryLogger(), log_every_n_steps=5)
    assert {batch for batch in counted.reads if batch is not None} == {4, 9, 14, 19}


@pytest.mark.slow
def test_a_batch_is_sent_once_and_nobody_waits(run) -> None:
    """The tensors of a batch go to the device one time each, and nothing else does in a step."""
    counted = run()
    assert sum(counted.sent.values()) >= 2 * (BATCHES + 2)
    assert max(n for batch, n in counted.sent.items() if batch is not None) <= 1
