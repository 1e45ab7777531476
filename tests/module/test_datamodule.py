"""DataModule: its hyperparameters, how it is made again, and the places where it may stand."""

from __future__ import annotations

import pytest
import torch

from trainer_hooks import DataModule, Module, Trainer
from trainer_hooks.errors import ModuleError
from trainer_hooks.loggers import InMemoryLogger


class WithoutSteps(Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, batch):
        return self.layer(batch)

    def loss(self, outputs, batch):
        return outputs.square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Numbers(DataModule):
    def __init__(self, count: int, batch_size: int = 2, secret=None) -> None:
        self.save_hyperparameters(ignore="secret")
        self.seen = 0

    def train_dataloader(self):
        self.seen += 1
        rows = torch.ones(self.hparams.count, 4)
        return [rows[i : i + self.hparams.batch_size] for i in range(0, len(rows), 2)]

    test_dataloader = val_dataloader = predict_dataloader = train_dataloader

    def state_dict(self):
        return {"seen": self.seen}

    def load_state_dict(self, state_dict):
        self.seen = state_dict["seen"]


def test_it_is_made_again_with_its_arguments_and_its_state(quiet_trainer, tmp_path) -> None:
    """A checkpoint holds its hyperparameters where Lightning's does, and its state."""
    trainer = quiet_trainer(max_epochs=1)
    trainer.fit(WithoutSteps(), Numbers(6, batch_size=3))
    path = tmp_path / "one.ckpt"
    trainer.save_checkpoint(path)
    held = torch.load(path, weights_only=True)
    assert held["datamodule_hyper_parameters"] == {"count": 6, "batch_size": 3}
    again = Numbers.load_from_checkpoint(path, batch_size=1)
    assert again.hparams == {"count": 6, "batch_size": 1}
    assert again.seen == 2


def test_what_the_file_does_not_hold_is_named(quiet_trainer, tmp_path) -> None:
    """A file of a run without it says which argument to pass."""
    trainer = quiet_trainer(max_epochs=1)
    trainer.fit(WithoutSteps(), [torch.ones(1, 4)])
    path = tmp_path / "one.ckpt"
    trainer.save_checkpoint(path)
    with pytest.raises(ModuleError, match=r"holds no hyperparameter 'count'.*count=\.\.\."):
        Numbers.load_from_checkpoint(path)
    assert Numbers.load_from_checkpoint(path, count=2).seen == 0


def test_loggers_are_given_its_hyperparameters_too(tmp_path) -> None:
    """They stand beside the module's."""
    logger = InMemoryLogger()
    trainer = Trainer(
        max_epochs=1,
        logger=logger,
        default_root_dir=tmp_path,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
    )
    trainer.fit(WithoutSteps(), Numbers(4))
    assert logger.hparams == {"count": 4, "batch_size": 2}


@pytest.mark.parametrize("verb", ["fit", "validate", "test", "predict"])
def test_it_may_stand_in_the_second_place(quiet_trainer, verb) -> None:
    """Where loaders stand, as in Lightning."""
    numbers, trainer = Numbers(4), quiet_trainer(max_epochs=1)
    getattr(trainer, verb)(WithoutSteps(), numbers)
    assert numbers.seen
    assert trainer.datamodule is numbers


def test_its_hyperparameters_may_come_from_a_file(quiet_trainer, tmp_path) -> None:
    """`hparams_file` takes the place of what the checkpoint holds, as for a module."""
    trainer = quiet_trainer(max_epochs=1)
    trainer.fit(WithoutSteps(), Numbers(6, batch_size=3))
    trainer.save_checkpoint(tmp_path / "data.ckpt")
    (tmp_path / "data.yaml").write_text("count: 4\nbatch_size: 1\n")
    again = Numbers.load_from_checkpoint(
        tmp_path / "data.ckpt", hparams_file=tmp_path / "data.yaml", weights_only=True
    )
    assert (again.hparams.count, again.hparams.batch_size, again.seen) == (4, 1, 2)
