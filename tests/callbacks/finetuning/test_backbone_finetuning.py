"""BackboneFinetuning in runs."""

from __future__ import annotations

import logging

import pytest
import torch

from trainer_hooks import Callback
from trainer_hooks.callbacks import BackboneFinetuning
from trainer_hooks.errors import CallbackError, OptionError
from trainer_hooks.testing import TinyModule


class Rates(Callback):
    """Notes the learning rates of each epoch."""

    def __init__(self) -> None:
        self.seen = []

    def on_train_epoch_end(self, trainer, module):
        self.seen.append([g["lr"] for g in trainer.optimizers[0].param_groups])


def test_the_learning_rate_rises_to_the_others(quiet_trainer, split) -> None:
    """It begins at a share of theirs, doubles each epoch, and stays at theirs once there."""
    rates, finetuning = Rates(), BackboneFinetuning(1)
    quiet_trainer(callbacks=[finetuning, rates], max_epochs=6).fit(split())
    assert [seen[1:] for seen in rates.seen] == [
        [],
        [pytest.approx(0.05)],
        [pytest.approx(0.1)],
        [pytest.approx(0.2)],
        [pytest.approx(0.4)],
        [0.5],
    ]
    assert finetuning.previous_backbone_lr == 0.5


def test_what_the_arguments_choose(quiet_trainer, split) -> None:
    """The first rate, its factor by epoch, and that it may rise over the others'."""
    rates, asked = Rates(), []

    def factor(epoch):
        asked.append(epoch)
        return 3.0

    finetuning = BackboneFinetuning(
        0, factor, backbone_initial_lr=0.25, should_align=False, verbose=True, rounding=3
    )
    quiet_trainer(callbacks=[finetuning, rates], max_epochs=3).fit(split())
    assert [seen[1] for seen in rates.seen] == [0.25, 0.75, 2.25]
    assert asked == [2, 3]


def test_the_rates_are_told(quiet_trainer, split, caplog) -> None:
    """With verbose they are logged, rounded."""
    with caplog.at_level(logging.INFO, "trainer_hooks"):
        quiet_trainer(
            callbacks=[BackboneFinetuning(0, backbone_initial_lr=1 / 3, verbose=True, rounding=2)]
        ).fit(split())
    assert "learning rate 0.5, of the backbone 0.33" in caplog.text


def test_the_backbone_is_frozen_before(quiet_trainer, split) -> None:
    """Before its epoch it does not move, afterwards it does."""
    module = split()
    before = module.backbone[0].weight.detach().clone()
    trainer = quiet_trainer(callbacks=[BackboneFinetuning(1)])
    trainer.fit(module)
    assert torch.equal(before, module.backbone[0].weight)
    trainer.max_epochs = 2
    trainer.fit(module)
    assert not torch.equal(before, module.backbone[0].weight)


@pytest.mark.parametrize("train_bn", [True, False])
def test_batch_norm_is_trained_from_the_start_or_not_at_all(train_bn, quiet_trainer, split) -> None:
    """train_bn decides on its parameters; its statistics move once the backbone is trained."""
    module = split()
    trainer = quiet_trainer(callbacks=[BackboneFinetuning(1, train_bn=train_bn)])
    trainer.fit(module)
    norm = module.backbone[1]
    assert torch.equal(norm.running_mean, torch.zeros(2)) is not train_bn
    trainer.max_epochs = 2
    trainer.fit(module)
    moved = not torch.equal(norm.weight, torch.ones(2))
    followed = not torch.equal(norm.running_mean, torch.zeros(2))
    assert (moved, followed) == (train_bn, True)


def test_resumed_with_another_epoch(quiet_trainer, split, tmp_path) -> None:
    """Arguments of the resumed run count: a backbone that is overdue is unfrozen at once."""
    trainer = quiet_trainer(callbacks=[BackboneFinetuning(9)], max_epochs=2)
    trainer.fit(split())
    trainer.save_checkpoint(tmp_path / "x.ckpt")
    rates = Rates()
    quiet_trainer(callbacks=[BackboneFinetuning(1), rates], max_epochs=4).fit(
        split(), ckpt_path=tmp_path / "x.ckpt"
    )
    assert [seen[1] for seen in rates.seen] == [pytest.approx(0.05), pytest.approx(0.1)]


def test_a_factor_that_is_none(quiet_trainer, split) -> None:
    """What lambda_func returns is checked where it is used."""
    finetuning = BackboneFinetuning(0, lambda epoch: None)
    with pytest.raises(OptionError, match="factor None of BackboneFinetuning's lambda_func"):
        quiet_trainer(callbacks=[finetuning], max_epochs=2).fit(split())


def test_a_module_without_a_backbone(quiet_trainer) -> None:
    """The error says what to name it."""
    with pytest.raises(CallbackError, match="backbone None of TinyModule"):
        quiet_trainer(callbacks=[BackboneFinetuning()]).fit(TinyModule())
