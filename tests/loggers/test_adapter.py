"""Loggers that are known by their methods: their class is the user's own."""

from __future__ import annotations

import pickle

import pytest
import torch

from trainer_hooks import Module, Trainer
from trainer_hooks.errors import OptionError
from trainer_hooks.loggers import InMemoryLogger


class Plain:
    """A logger of no framework, with the two methods that a logger needs."""

    def __init__(self):
        self.rows = []
        self.params = {}

    def log_metrics(self, metrics, step):
        self.rows.append((step, metrics))

    def log_hyperparams(self, params):
        self.params = dict(params)


class Whole(Plain):
    """One with all methods and attributes."""

    name, version = "mine", 3

    def __init__(self, folder):
        super().__init__()
        self.save_dir = folder
        self.calls = []

    def log_graph(self, model, input_array=None):
        self.calls.append("graph")

    def after_save_checkpoint(self, checkpoint_callback):
        self.calls.append("checkpoint")

    def finalize(self, status):
        self.calls.append(status)


class Line(Module):
    def __init__(self, width=2):
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(width, 1)

    def training_step(self, batch, batch_idx):
        loss = self.layer(batch).square().mean()
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fit(logger, folder):
    torch.manual_seed(0)
    trainer = Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=logger,
        log_every_n_steps=1,
        default_root_dir=folder,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Line(), [torch.ones(1, 2)] * 3)
    return trainer


def test_two_methods_are_enough(tmp_path):
    """It gets the rows and hyperparameters that a Logger gets; the files go to the root folder."""
    plain, ours = Plain(), InMemoryLogger()
    trainer = fit([plain, ours], tmp_path)
    assert plain.params == {"width": 2}
    assert [step for step, _ in plain.rows] == [0, 1, 2]
    assert plain.rows == [(step, dict(row)) for step, row in ours.metrics]
    assert len({row["loss"] for _, row in plain.rows}) == 3
    assert trainer.loggers[0].rows is plain.rows
    assert list(tmp_path.glob("checkpoints/*.ckpt"))


def test_all_that_it_has_is_used(tmp_path):
    """Its folder holds the checkpoints; it is told of them, and of the end."""
    whole = Whole(str(tmp_path / "own"))
    trainer = fit(whole, tmp_path)
    assert (trainer.logger.name, trainer.logger.version) == ("mine", 3)
    assert list((tmp_path / "own").rglob("*.ckpt"))
    assert {"checkpoint", "success"} <= set(whole.calls)


def test_it_can_be_copied():
    """A copy before the attributes are there does not look for them for ever."""
    trainer = Trainer(logger=Plain(), accelerator="cpu")
    assert pickle.loads(pickle.dumps(trainer.logger)).rows == []


@pytest.mark.parametrize("given", [Plain, object(), 3, [Plain(), print]])
def test_what_is_no_logger_is_refused(given):
    """A class, an object without the methods, or one among several."""
    with pytest.raises(OptionError, match="must be True, False, a trainer_hooks Logger"):
        Trainer(logger=given)
