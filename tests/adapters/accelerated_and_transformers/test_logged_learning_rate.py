"""The learning rate in what callbacks of transformers are told is logged."""

from __future__ import annotations

import pytest
import torch

import trainer_hooks
from trainer_hooks.callbacks import ModelCheckpoint

pytestmark = [pytest.mark.filterwarnings("ignore::FutureWarning"), pytest.mark.slow]


class Net(trainer_hooks.Module):
    """A layer whose learning rate is halved with each step.

    Args:
        of_epoch: whether the loss is logged as the mean of an epoch, and not of each step.
    """

    def __init__(self, *, of_epoch=False):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.of_epoch = of_epoch

    def training_step(self, batch, batch_idx):
        loss = self.layer(batch).square().mean()
        self.log("loss", loss, on_step=not self.of_epoch, on_epoch=self.of_epoch)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("eval_loss", self.layer(batch).square().mean())

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), 0.1)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        return [optimizer], [{"scheduler": scheduler, "interval": "step"}]


def test_a_training_log_has_the_learning_rate_of_its_step(tmp_path):
    """That of the step before the scheduler's; neither an evaluation nor the summary has one."""
    transformers = pytest.importorskip("transformers")
    told = []

    class Look(transformers.TrainerCallback):
        def on_log(self, args, state, control, logs=None, **kwargs):
            told.append((sorted({"loss", "eval_loss"} & set(logs)), logs.get("learning_rate")))
            self.history = list(state.log_history)

    look = Look()
    trainer = trainer_hooks.Trainer(
        callbacks=[look], max_epochs=1, log_every_n_steps=1, num_sanity_val_steps=0,
        default_root_dir=tmp_path, accelerator="cpu", enable_progress_bar=False,
        enable_model_summary=False, enable_checkpointing=False,
    )  # fmt: skip
    trainer.fit(Net(), list(torch.ones(3, 2, 1)), list(torch.ones(1, 2, 1)))
    assert told == [
        (["loss"], pytest.approx(0.1)),
        (["loss"], pytest.approx(0.05)),
        (["loss"], pytest.approx(0.025)),
        (["eval_loss"], None),
        ([], None),  # the summary of the training
    ]
    assert look.history[-2]["eval_loss"] > 0


def test_the_learning_rate_of_the_last_step_survives_a_resume(tmp_path):
    """An epoch's mean, logged before the resumed run steps, has rate and norm of the step saved."""
    transformers = pytest.importorskip("transformers")

    def history(path=None):
        saver = ModelCheckpoint(tmp_path, "{step}", every_n_train_steps=3)
        trainer = trainer_hooks.Trainer(
            callbacks=[transformers.TrainerCallback(), saver], max_epochs=1, accelerator="cpu",
            default_root_dir=tmp_path, logger=False, enable_progress_bar=False,
            enable_model_summary=False, plugins=False,
        )  # fmt: skip
        trainer.fit(Net(of_epoch=True), list(torch.ones(3, 2, 1)), ckpt_path=path)
        return trainer.dump_checkpoint()["transformers"]["log_history"]

    uncut = history()
    assert uncut[-1]["learning_rate"] == pytest.approx(0.025)
    resumed = history(tmp_path / "step=3.ckpt")
    for name in ("learning_rate", "grad_norm"):
        assert uncut[-1][name] is not None
        assert [row.get(name) for row in resumed] == [row.get(name) for row in uncut]
