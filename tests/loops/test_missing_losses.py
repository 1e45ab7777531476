"""A `training_step` that returns None causes a warning, and an error if it always does."""

from __future__ import annotations

import itertools
import warnings

import pytest
import torch
from torch.utils.data import IterableDataset

from trainer_hooks import Callback, TrainerHooksWarning
from trainer_hooks.errors import ModuleError


@pytest.fixture
def Forgetful(Tiny):
    """A module whose `training_step` returns the loss of every n-th batch alone; of none for 0."""

    class Forgetful(Tiny):
        def __init__(self, every=0) -> None:
            super().__init__()
            self.every = every

        def training_step(self, batch, batch_idx):
            loss = super().training_step(batch, batch_idx)
            return loss if self.every and batch_idx % self.every == 0 else None

    return Forgetful


def test_a_batch_without_a_loss(Forgetful, quiet_trainer, batches) -> None:
    """Only the first None causes a warning, which names the batch and the consequence."""
    trainer = quiet_trainer(max_epochs=2)
    with pytest.warns(TrainerHooksWarning) as caught:
        trainer.fit(Forgetful(every=2), batches(4))
    (told,) = caught
    assert "Forgetful.training_step returned None in epoch 0, batch 1" in str(told.message)
    assert "skipped" in str(told.message)
    assert "Return the loss" in str(told.message)
    assert trainer.global_step == 4


@pytest.mark.parametrize(
    "options",
    [{"max_epochs": 3}, {"max_epochs": None, "max_steps": 2}, {"accumulate_grad_batches": 3}],
)
@pytest.mark.filterwarnings("ignore:.*returned None")
def test_an_epoch_without_a_loss(Forgetful, quiet_trainer, batches, options) -> None:
    """An epoch in which no batch had a loss is an error that names the missing statement."""
    trainer = quiet_trainer(**options)
    with pytest.raises(ModuleError, match=r"None for each of 4 batches of epoch 0.*`return loss`"):
        trainer.fit(Forgetful(), batches(4))


@pytest.mark.filterwarnings("ignore:.*returned None")
def test_a_stream_without_a_loss(Forgetful, quiet_trainer) -> None:
    """A loader without an end is left after a thousand batches without a loss."""

    class Endless(IterableDataset):
        def __iter__(self):
            return itertools.repeat(torch.ones(2, 2))

    loader = torch.utils.data.DataLoader(Endless(), batch_size=None)
    with pytest.raises(ModuleError, match=r"None for each of 1000 batches"):
        quiet_trainer(max_epochs=None, max_steps=2).fit(Forgetful(), loader)


@pytest.mark.filterwarnings("ignore:.*returned None")
@pytest.mark.parametrize("size", [1, "auto"])
def test_parts_without_a_loss(Forgetful, quiet_trainer, batches, size) -> None:
    """Each batch counts once where it is split into parts."""
    with pytest.raises(ModuleError, match="each of 3 batches"):
        quiet_trainer(microbatch_size=size).fit(Forgetful(), batches(3))


def test_no_optimizer(Forgetful, quiet_trainer, batches) -> None:
    """A module without an optimizer learns nothing in any case, and causes no warning."""

    class Untrained(Forgetful):
        def configure_optimizers(self):
            return []

    with warnings.catch_warnings(action="error"):
        quiet_trainer().fit(Untrained(), batches(2))


@pytest.mark.filterwarnings("ignore:.*returned None")
def test_a_stop(Forgetful, quiet_trainer, batches) -> None:
    """A run that is stopped ends without this error."""

    class Stop(Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            if batch_idx == 1:
                trainer.stop("enough")

    quiet_trainer(callbacks=Stop(), max_epochs=2).fit(Forgetful(), batches(2))
