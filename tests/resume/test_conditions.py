"""A resume with other settings: refused where it cannot go on, told in one warning where it can."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    LambdaLR,
    OneCycleLR,
    ReduceLROnPlateau,
    SequentialLR,
    StepLR,
)
from torch.utils.data import DataLoader, SequentialSampler, TensorDataset

from trainer_hooks import Callback, Module
from trainer_hooks.errors import CheckpointError, DataError, OptionError, TrainerHooksWarning


class Net(Module):
    """A module whose optimizers and schedulers are made by what it is given."""

    def __init__(self, make, schedule=None, **hparams):
        super().__init__()
        self.save_hyperparameters(hparams)
        self.layer = torch.nn.Linear(2, 1)
        self.make, self.schedule = make, schedule

    def training_step(self, batch, batch_idx):
        loss = self.layer(batch[0]).square().mean()
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        optimizer = self.make(self.parameters())
        if self.schedule is None:
            return optimizer
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": self.schedule(optimizer), "monitor": "loss"},
        }


def sgd(lr=0.01, **options):
    return lambda parameters: torch.optim.SGD(parameters, lr, **options)


def loader(**options):
    data = TensorDataset(torch.arange(16.0).reshape(8, 2) / 16)
    return DataLoader(data, **{"batch_size": 2, "shuffle": True, **options})


@pytest.fixture
def saved(quiet_trainer, tmp_path):
    """A function that trains two epochs, or a number of steps, and returns the path of a file."""

    def save(module, **options):
        trainer = quiet_trainer(**{"max_epochs": 2, **options})
        trainer.fit(module, loader())
        trainer.save_checkpoint(tmp_path / "c.ckpt")
        return tmp_path / "c.ckpt"

    return save


def as_older(path):
    """Take out what files of earlier versions do not hold."""
    checkpoint = torch.load(path, weights_only=True)
    del checkpoint["trainer_hooks"]["setup"]
    for shape in checkpoint["trainer_hooks"]["stream"]["shape"]:
        del shape["sampler"]
    torch.save(checkpoint, path)
    return path


@pytest.mark.parametrize("is_older", [False, True])
@pytest.mark.parametrize(
    ("before", "now"),
    [
        (sgd(), torch.optim.Adam),
        (torch.optim.Adam, sgd()),
        (torch.optim.Adam, torch.optim.RMSprop),
    ],
)
def test_another_optimizer(before, now, is_older, saved, quiet_trainer) -> None:
    """A state of another optimizer's class is refused, and torch never meets it."""
    path = saved(Net(before))
    if is_older:
        as_older(path)
    with pytest.raises(CheckpointError, match=r"cannot be resumed from: optimizer 0 .*is torch"):
        quiet_trainer(max_epochs=3).fit(Net(now), loader(), ckpt_path=path)


def test_a_kindred_optimizer(saved, quiet_trainer) -> None:
    """AdamW does not take Adam's weight decay over without a word."""
    path = saved(Net(torch.optim.Adam))
    with pytest.raises(CheckpointError, match=r"was torch\.optim\.adam\.Adam .*AdamW now"):
        quiet_trainer(max_epochs=3).fit(Net(torch.optim.AdamW), loader(), ckpt_path=path)


@pytest.mark.parametrize("is_older", [False, True])
def test_another_scheduler(is_older, saved, quiet_trainer) -> None:
    """A state of another scheduler's class is refused."""
    path = saved(Net(sgd(), lambda o: StepLR(o, 1)))
    if is_older:
        as_older(path)
    module = Net(sgd(), lambda o: CosineAnnealingLR(o, 5))
    with pytest.raises(CheckpointError, match=r"cannot be resumed from: scheduler 0 .*Cosine"):
        quiet_trainer(max_epochs=3).fit(module, loader(), ckpt_path=path)


def test_an_older_file_goes_on(saved, quiet_trainer) -> None:
    """A file that does not say what it was saved with is taken as before."""
    path = as_older(saved(Net(sgd(), lambda o: StepLR(o, 1))))
    with warnings.catch_warnings(action="error"):
        trainer = quiet_trainer(max_epochs=3)
        trainer.fit(Net(sgd(), lambda o: StepLR(o, 1)), loader(), ckpt_path=path)
    assert trainer.optimizers[0].param_groups[0]["lr"] == pytest.approx(0.01 * 0.1**3)


@pytest.mark.parametrize(
    ("options", "change"),
    [
        ({"gradient_clip_val": 0.5}, "gradient_clip_val None -> 0.5"),
        ({"gradient_clip_algorithm": "value"}, "gradient_clip_algorithm 'norm' -> 'value'"),
        ({"limit_train_batches": 1}, "limit_train_batches 1.0 -> 1"),
        ({"val_check_interval": 3}, "val_check_interval 1.0 -> 3"),
        ({"val_check_interval": "1h"}, "val_check_interval 1.0 -> '3600sec'"),
        ({"check_val_every_n_epoch": 2}, "check_val_every_n_epoch 1 -> 2"),
        ({"overfit_batches": 2}, "overfit_batches 0 -> 2"),
    ],
    ids=str,
)
def test_other_options_of_the_trainer(saved, quiet_trainer, options, change) -> None:
    """Those that decide what is trained are listed, and a resume with the same is silent."""
    path = saved(Net(sgd()))
    trainer = quiet_trainer(max_epochs=3, **options)
    with pytest.warns(TrainerHooksWarning) as caught:
        trainer.fit(Net(sgd()), loader(), ckpt_path=path)
    # of overfit_batches there is a second warning, of the sampler
    told = [str(one.message) for one in caught if "other settings" in str(one.message)]
    assert [text.partition("This run's counts for: ")[2] for text in told] == [f"{change}."]
    # what the next file holds is what this run was trained with
    trainer.save_checkpoint(path)
    quiet_trainer(max_epochs=4, **options).fit(Net(sgd()), loader(), ckpt_path=path)


def test_options_that_a_callback_changes(saved, quiet_trainer) -> None:
    """What changes within a run, and the length of the training, are no other settings."""

    class Changes(Callback):
        def on_train_epoch_start(self, trainer, module):
            trainer.max_epochs = 5
            trainer.accumulate_grad_batches = 1

    path = saved(Net(sgd()), callbacks=[Changes()], gradient_clip_val=1)
    # the same numbers, written in another way
    same = {"gradient_clip_val": 1.0, "overfit_batches": 0, "gradient_clip_algorithm": "norm"}
    quiet_trainer(max_epochs=6, **same).fit(Net(sgd()), loader(), ckpt_path=path)


def test_numbers_of_numpy_are_no_other_settings(saved, quiet_trainer) -> None:
    """A share of NumPy is the same number."""
    path = saved(Net(sgd()), limit_train_batches=0.5, val_check_interval=0.5)
    same = {"limit_train_batches": np.float64(0.5), "val_check_interval": np.float64(0.5)}
    quiet_trainer(max_epochs=3, **same).fit(Net(sgd()), loader(), ckpt_path=path)


def test_what_a_dry_run_sets_is_no_other_setting(saved, quiet_trainer) -> None:
    """`fast_dev_run` sets limits and intervals; only what was chosen besides it is told."""
    path = saved(Net(sgd()), max_steps=1, check_val_every_n_epoch=2)
    trainer = quiet_trainer(fast_dev_run=2, gradient_clip_val=0.5)
    with pytest.warns(TrainerHooksWarning) as caught:
        trainer.fit(Net(sgd()), loader(), ckpt_path=path)
    (told,) = [str(one.message) for one in caught if "other settings" in str(one.message)]
    assert told.endswith("has. This run's counts for: gradient_clip_val None -> 0.5.")


def test_a_file_without_options_of_the_trainer_says_nothing(saved, quiet_trainer) -> None:
    """Files of earlier versions hold none to compare."""
    path = saved(Net(sgd()))
    checkpoint = torch.load(path, weights_only=True)
    del checkpoint["trainer_hooks"]["setup"]["trainer"]
    torch.save(checkpoint, path)
    quiet_trainer(max_epochs=3, gradient_clip_val=0.5).fit(Net(sgd()), loader(), ckpt_path=path)


def test_other_settings(saved, quiet_trainer) -> None:
    """All that differs stands in one warning, each with both values and the side that counts."""
    path = saved(Net(sgd(), lambda o: StepLR(o, 5), rate=0.01, parts={"depth": 2, "width": 3}))
    trainer = quiet_trainer(max_epochs=3, precision="bf16-mixed")
    module = Net(
        sgd(0.5, momentum=0.9),
        lambda o: StepLR(o, 7),
        rate=0.5,
        parts={"depth": 2, "width": 4},
    )
    with pytest.warns(TrainerHooksWarning) as caught:
        trainer.fit(module, loader(), ckpt_path=path)
    (told,) = caught
    assert (
        "The checkpoint's counts for: lr 0.01 -> 0.5 (overrides=['lr'] takes this run's), "
        "momentum 0 -> 0.9, step_size of StepLR 5 -> 7. "
        "This run's counts for: precision 32-true -> bf16-mixed, "
        "hyperparameter rate 0.01 -> 0.5, hyperparameter parts.width 3 -> 4."
    ) in str(told.message)
    assert trainer.optimizers[0].param_groups[0]["lr"] == 0.01
    assert trainer.optimizers[0].param_groups[0]["momentum"] == 0


def test_what_counts_is_noted(saved, quiet_trainer, tmp_path) -> None:
    """A file that the resumed run saves says what was in effect, so that the next one tells it."""
    path = saved(Net(sgd()))
    trainer = quiet_trainer(max_epochs=3)
    with pytest.warns(TrainerHooksWarning, match=r"lr 0\.01 -> 0\.5"):
        trainer.fit(Net(sgd(0.5)), loader(), ckpt_path=path)
    trainer.save_checkpoint(path)
    with pytest.warns(TrainerHooksWarning, match=r"lr 0\.01 -> 0\.5"):
        quiet_trainer(max_epochs=4).fit(Net(sgd(0.5)), loader(), ckpt_path=path)


def test_a_rate_of_an_older_file(saved, quiet_trainer) -> None:
    """The learning rate is compared with a file that notes no settings, too."""
    path = as_older(saved(Net(sgd(), lambda o: StepLR(o, 1))))
    with pytest.warns(TrainerHooksWarning, match=r"lr 0\.01 -> 0\.5 \(overrides"):
        quiet_trainer(max_epochs=3).fit(
            Net(sgd(0.5), lambda o: StepLR(o, 1)), loader(), ckpt_path=path
        )


SCHEDULES = {
    "none": None,
    "step": lambda o: StepLR(o, 1, 0.5),
    "lambda": lambda o: LambdaLR(o, lambda epoch: 1 / (1 + epoch)),
    "cosine": lambda o: CosineAnnealingLR(o, 8),
    "one cycle": lambda o: OneCycleLR(o, max_lr=4 * o.param_groups[0]["lr"], total_steps=9),
    "sequence": lambda o: SequentialLR(
        o, [LambdaLR(o, lambda epoch: (1 + epoch) / 4), StepLR(o, 1, 0.5)], [2]
    ),
}


@pytest.mark.filterwarnings("ignore:.*settings:trainer_hooks.TrainerHooksWarning")
@pytest.mark.filterwarnings("ignore:The epoch parameter in:UserWarning")
@pytest.mark.parametrize("name", SCHEDULES)
def test_an_overridden_rate(name, saved, quiet_trainer) -> None:
    """A rate of this run goes on where a run that always had it would be, and its schedule too."""
    path = saved(Net(sgd(0.01, momentum=0.9), SCHEDULES[name]))
    trainer = quiet_trainer(max_epochs=5)
    trainer.fit(
        Net(sgd(0.5, momentum=0.9), SCHEDULES[name]),
        loader(),
        ckpt_path=path,
        overrides=["lr"],
    )
    uncut = quiet_trainer(max_epochs=5)
    uncut.fit(Net(sgd(0.5, momentum=0.9), SCHEDULES[name]), loader())
    (one,), (other,) = trainer.optimizers[0].param_groups, uncut.optimizers[0].param_groups
    assert one["lr"] == pytest.approx(other["lr"])
    assert one.get("initial_lr") == other.get("initial_lr")
    for config, known in zip(trainer.lr_scheduler_configs, uncut.lr_scheduler_configs, strict=True):
        assert config.scheduler.get_last_lr() == pytest.approx(known.scheduler.get_last_lr())
        assert getattr(config.scheduler, "base_lrs", 0) == getattr(known.scheduler, "base_lrs", 0)


def test_an_overridden_rate_on_a_plateau(saved, quiet_trainer) -> None:
    """A scheduler that keeps no rate of its own goes on from this run's."""
    path = saved(Net(sgd(), ReduceLROnPlateau))
    trainer = quiet_trainer(max_epochs=3)
    trainer.fit(Net(sgd(0.5), ReduceLROnPlateau), loader(), ckpt_path=path, overrides="lr")
    assert trainer.optimizers[0].param_groups[0]["lr"] == 0.5


def test_other_overridden_options(saved, quiet_trainer) -> None:
    """What is overridden is not warned of, and what is not stays the checkpoint's."""
    path = saved(Net(sgd()))
    trainer = quiet_trainer(max_epochs=3)
    module = Net(sgd(0.5, weight_decay=0.25))
    with pytest.warns(TrainerHooksWarning) as caught:
        trainer.fit(module, loader(), ckpt_path=path, overrides={"weight_decay"})
    assert "weight_decay" not in str(caught[0].message)
    group = trainer.optimizers[0].param_groups[0]
    assert (group["lr"], group["weight_decay"]) == (0.01, 0.25)


def test_overrides_that_are_none(saved, quiet_trainer) -> None:
    """An option that no optimizer has, values, and overrides without a checkpoint are errors."""
    path = saved(Net(sgd()))
    trainer = quiet_trainer(max_epochs=3)
    with pytest.raises(OptionError, match=r"names 'momentun'.*Did you mean 'momentum'\?"):
        trainer.fit(Net(sgd()), loader(), ckpt_path=path, overrides=["momentun"])
    with pytest.raises(OptionError, match=r"must be names .*configure_optimizers"):
        trainer.fit(Net(sgd()), loader(), ckpt_path=path, overrides={"lr": 0.5})
    with pytest.raises(OptionError, match="without ckpt_path"):
        trainer.fit(Net(sgd()), loader(), overrides=["lr"])


class Backwards(SequentialSampler):
    def __iter__(self):
        return reversed(range(len(self)))


def test_another_order_inside_an_epoch(quiet_trainer, tmp_path) -> None:
    """A sampler of another class in the middle of an epoch is refused, by both names."""
    path = tmp_path / "inside.ckpt"

    class Save(Callback):
        def on_batch_checkpoint(self, trainer, module):
            if trainer.global_step == 2:
                trainer.save_checkpoint(path)

    quiet_trainer(callbacks=Save()).fit(Net(sgd()), loader())
    with pytest.raises(DataError, match="sampler was RandomSampler and is SequentialSampler"):
        quiet_trainer().fit(Net(sgd()), loader(shuffle=False), ckpt_path=path)


def test_another_order_between_epochs(saved, quiet_trainer) -> None:
    """A sampler of another class at an epoch's end is told, and the run goes on with it."""
    path = saved(Net(sgd()))
    trainer = quiet_trainer(max_epochs=3)
    train = loader(shuffle=False)
    other = loader(shuffle=False, sampler=Backwards(train.dataset))
    with pytest.warns(TrainerHooksWarning, match="sampler was RandomSampler and is Backwards"):
        trainer.fit(Net(sgd()), other, ckpt_path=path)
