"""Steps that are made of a module's forward and loss, and where they are not."""

import pytest
import torch

from trainer_hooks import Module
from trainer_hooks.compat.lightning import LightningModule
from trainer_hooks.errors import ModuleError


def with_loss(base: type, **steps) -> type:
    """Return a module class with a forward, a method `loss`, and these steps."""

    class WithLoss(base):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def forward(self, batch):
            return self.layer(batch)

        def loss(self, outputs, batch):
            return (outputs - 1).square().mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    for name, step in steps.items():
        setattr(WithLoss, name, step)
    return WithLoss


def own_step(self, batch, batch_idx):
    return self.loss(self(batch), batch)


def test_a_module_without_steps_has_all(quiet_trainer, batches) -> None:
    """Fit, validate and test run, and log their losses; prediction has no part in it."""
    module, trainer = with_loss(Module, predict_step=own_step)(), quiet_trainer(max_epochs=1)
    trainer.fit(module, batches(2), batches(2))
    assert {"train_loss", "val_loss"} <= trainer.callback_metrics.keys()
    assert "test_loss" in trainer.test(module, batches(2), verbose=False)[0]


def test_beside_a_training_step_there_is_no_other(quiet_trainer, batches) -> None:
    """A method `loss` is the user's there, and the error names the step that lacks."""
    module = with_loss(Module, training_step=own_step)()
    for name, verb in (("validation_step", "validate"), ("test_step", "test")):
        with pytest.raises(ModuleError, match=rf"has no {name}: define .*\)[^(]*\.$"):
            getattr(quiet_trainer(), verb)(module, batches(2))


def test_a_validation_step_leaves_the_training_to_the_loss(quiet_trainer, batches) -> None:
    """A module that only evaluates in its own way trains by its loss."""

    def validation_step(self, batch, batch_idx):
        self.log("own", 3.0)

    trainer = quiet_trainer()
    trainer.fit(with_loss(Module, validation_step=validation_step)(), batches(2), batches(2))
    assert trainer.global_step == 2
    assert trainer.callback_metrics["own"] == 3.0
    assert "val_loss" not in trainer.callback_metrics


def test_a_step_of_none_is_missing(quiet_trainer, batches) -> None:
    """`test_step = None` leaves the step out, and the others are there."""
    module = with_loss(Module, test_step=None)()
    quiet_trainer().validate(module, batches(2), verbose=False)
    with pytest.raises(ModuleError, match="has no test_step"):
        quiet_trainer().test(module, batches(2))


@pytest.mark.parametrize("verb", ["fit", "validate", "test"])
def test_a_module_of_lightning_has_none(quiet_trainer, batches, verb) -> None:
    """A method `loss` is nothing special there."""
    with pytest.raises(ModuleError, match=r"WithLoss has no \w+_step: define [^,]*, batch_idx\)"):
        getattr(quiet_trainer(), verb)(with_loss(LightningModule)(), batches(2))
