"""Schedulers go on over a group of parameters that a callback adds."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from quiet_trainers import QUIET_OPTIONS
from torch.optim import lr_scheduler

from trainer_hooks import Callback, Module, Trainer
from trainer_hooks.callbacks import BackboneFinetuning
from trainer_hooks.errors import OptimizationError

QUIET = {**QUIET_OPTIONS, "max_epochs": 4}


class Net(Module):
    def __init__(self, make_scheduler) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.backbone = torch.nn.Linear(4, 3)
        self.head = torch.nn.Linear(3, 1)
        self.make_scheduler = make_scheduler

    def training_step(self, batch, batch_idx):
        return self.head(self.backbone(batch)).square().mean()

    def configure_optimizers(self):
        trained = [parameter for parameter in self.parameters() if parameter.requires_grad]
        optimizer = torch.optim.SGD(trained, lr=0.1, momentum=0.9)
        return [optimizer], [self.make_scheduler(optimizer)]


class Rates(Callback):
    """Notes the rates of each epoch, and saves a checkpoint after it."""

    def __init__(self, folder) -> None:
        self.folder = folder
        self.seen = []

    def on_epoch_checkpoint(self, trainer, module):
        trainer.save_checkpoint(self.folder / f"{trainer.current_epoch}.ckpt")

    def on_train_epoch_end(self, trainer, module):
        self.seen.append([group["lr"] for group in trainer.optimizers[0].param_groups])


class Adds(Callback):
    """Adds the backbone as a group of its own in epoch 1, and in no resumed run again."""

    def on_fit_start(self, trainer, module):
        module.backbone.requires_grad_(False)

    def on_train_epoch_start(self, trainer, module):
        if trainer.current_epoch == 1:
            module.backbone.requires_grad_(True)
            group = {"params": list(module.backbone.parameters()), "lr": 0.025}
            trainer.optimizers[0].add_param_group(group)


class SaveAt(Callback):
    """Saves a checkpoint in the middle of epoch 2."""

    def __init__(self, path) -> None:
        self.path = path

    def on_batch_checkpoint(self, trainer, module):
        if trainer.current_epoch == 2 and trainer.progress.batches_in_epoch == 2:
            trainer.save_checkpoint(self.path)


class HeadFirst(Net):
    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.head.parameters(), lr=0.1, momentum=0.9)
        return [optimizer], [self.make_scheduler(optimizer)]


def batches():
    return list(torch.arange(32.0).reshape(4, 2, 4).sin())


def by_lambda(optimizer):
    return lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5**epoch)


def by_object(optimizer):
    return lr_scheduler.LambdaLR(optimizer, partial(pow, 0.5))


def by_step(optimizer):
    return lr_scheduler.StepLR(optimizer, 1, gamma=0.5)


def fit(make_scheduler, folder, ckpt_path=None):
    net, rates = Net(make_scheduler), Rates(folder)
    finetuning = BackboneFinetuning(1, lambda epoch: 1.5, 0.5, should_align=False)
    trainer = Trainer(callbacks=[finetuning, rates], **QUIET)
    trainer.fit(net, batches(), ckpt_path=ckpt_path)
    return net, rates.seen


@pytest.mark.parametrize("make_scheduler", [by_lambda, by_object])
def test_a_lambda_drives_the_group_from_its_rate_on(make_scheduler, tmp_path) -> None:
    """As a scheduler does that multiplies each rate, and is resumed with the same bits."""
    net, rates = fit(make_scheduler, tmp_path / "lambda")
    _, by_factor = fit(by_step, tmp_path / "step")
    assert [len(one) for one in rates] == [1, 2, 2, 2]
    for one, other in zip(rates, by_factor, strict=True):
        assert one == pytest.approx(other)
    for epoch in range(3):
        file = tmp_path / "lambda" / f"{epoch}.ckpt"
        resumed, left = fit(make_scheduler, tmp_path / f"resumed {epoch}", file)
        assert left == rates[epoch + 1 :]
        for name, weight in net.state_dict().items():
            assert torch.equal(weight, resumed.state_dict()[name]), (epoch, name)


@pytest.mark.parametrize(
    "make_scheduler",
    [
        lambda optimizer: lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 2),
        lambda optimizer: lr_scheduler.OneCycleLR(optimizer, 0.1, 16),
        lambda optimizer: lr_scheduler.CyclicLR(optimizer, 0.01, 0.1),
    ],
    ids=["restarts", "one cycle", "cyclic"],
)
def test_a_scheduler_for_a_number_of_groups_is_told(make_scheduler, tmp_path) -> None:
    """The error names the callback, the scheduler and those that fit."""
    with pytest.raises(OptimizationError, match=r"BackboneFinetuning has added .* Use LambdaLR"):
        fit(make_scheduler, tmp_path)


@pytest.mark.parametrize("make_scheduler", [by_lambda, by_step])
def test_a_group_that_a_hook_adds(make_scheduler, tmp_path) -> None:
    """The scheduler drives it from its rate on, also after a resume inside a later epoch."""
    nets, rates = [], []
    for path in (None, tmp_path / "inside.ckpt"):
        net, noted = HeadFirst(make_scheduler), Rates(tmp_path)
        saving = SaveAt(tmp_path / "inside.ckpt")
        Trainer(callbacks=[Adds(), noted, saving], **QUIET).fit(net, batches(), ckpt_path=path)
        nets.append(net)
        rates.append(noted.seen)
    # the scheduler has stepped before on_train_epoch_end
    assert rates[0] == [[0.05], [0.025, 0.0125], [0.0125, 0.00625], [0.00625, 0.003125]]
    assert rates[1] == rates[0][2:]
    for name, weight in nets[0].state_dict().items():
        assert torch.equal(weight, nets[1].state_dict()[name]), name


def test_a_hook_that_adds_a_group_to_one_that_cannot_take_it(tmp_path) -> None:
    """The error names the callbacks that have a hook there."""
    net = HeadFirst(lambda optimizer: lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 2))
    with pytest.raises(OptimizationError, match=r"^a hook of Adds has added a group"):
        Trainer(callbacks=[Adds(), Rates(tmp_path)], **QUIET).fit(net, batches())


def test_a_scheduler_without_added_groups_is_left_alone(tmp_path) -> None:
    """Its state is that of torch alone."""
    net = HeadFirst(by_lambda)
    trainer = Trainer(**QUIET)
    trainer.fit(net, batches())
    state = trainer.lr_scheduler_configs[0].scheduler.state_dict()
    assert "trainer_hooks_groups" not in state


def by_sequence(optimizer):
    warm_up = lr_scheduler.LinearLR(optimizer, 0.5, total_iters=2)
    cosine = lr_scheduler.CosineAnnealingLR(optimizer, 8)
    return lr_scheduler.SequentialLR(optimizer, [warm_up, cosine], [2])


def by_sequence_of_lambdas(optimizer):
    return lr_scheduler.SequentialLR(optimizer, [by_lambda(optimizer), by_step(optimizer)], [2])


def by_chain(optimizer):
    factor = lr_scheduler.ExponentialLR(optimizer, 0.9)
    return lr_scheduler.ChainedScheduler([by_lambda(optimizer), factor], optimizer)


def by_multiplication(optimizer):
    return lr_scheduler.MultiplicativeLR(optimizer, lambda epoch: 0.5)


def by_short_cosine(optimizer):
    return lr_scheduler.CosineAnnealingLR(optimizer, 2)


@pytest.mark.parametrize(
    "make_scheduler",
    [by_sequence, by_sequence_of_lambdas, by_chain, by_multiplication, by_short_cosine],
)
def test_an_added_group_keeps_its_proportion(make_scheduler, tmp_path) -> None:
    """Its rate stays a quarter of the first group's, also after a resume inside an epoch."""

    class AddsQuarter(Adds):
        def on_train_epoch_start(self, trainer, module):
            super().on_train_epoch_start(trainer, module)
            if trainer.current_epoch == 1:
                first, added = trainer.optimizers[0].param_groups
                added["lr"] = first["lr"] / 4

    seen = []
    for path in (None, tmp_path / "inside.ckpt"):
        noted, saving = Rates(tmp_path), SaveAt(tmp_path / "inside.ckpt")
        trainer = Trainer(callbacks=[AddsQuarter(), noted, saving], **QUIET)
        trainer.fit(HeadFirst(make_scheduler), batches(), ckpt_path=path)
        seen.append(noted.seen)
    for first, added in seen[0][1:]:
        assert added == pytest.approx(first / 4)
    assert seen[1] == seen[0][2:]


@pytest.mark.parametrize("interval", ["epoch", "step"])
@pytest.mark.parametrize("make_scheduler", [by_lambda, by_multiplication, by_step])
def test_a_group_that_is_added_inside_an_epoch(make_scheduler, interval) -> None:
    """The scheduler's next step drives it."""

    class AddsInside(Callback):
        def on_train_batch_start(self, trainer, module, batch, batch_idx):
            if batch_idx == trainer.current_epoch == 1:
                group = {"params": list(module.backbone.parameters())}
                optimizer = trainer.optimizers[0]
                optimizer.add_param_group({**group, "lr": optimizer.param_groups[0]["lr"] / 4})

    def make(optimizer):
        return {"scheduler": make_scheduler(optimizer), "interval": interval}

    trainer = Trainer(callbacks=[AddsInside()], **QUIET)
    trainer.fit(HeadFirst(make), batches())
    first, added = (group["lr"] for group in trainer.optimizers[0].param_groups)
    assert added == pytest.approx(first / 4)


def test_no_hook_is_blamed_for_a_group_that_it_has_not_added() -> None:
    """One that was added before the epoch's start hooks names none of them."""

    class AddsEarly(Callback):
        def on_train_start(self, trainer, module):
            trainer.optimizers[0].add_param_group({"params": list(module.backbone.parameters())})

    class Innocent(Callback):
        def on_train_epoch_start(self, trainer, module):
            pass

    net = HeadFirst(lambda optimizer: lr_scheduler.OneCycleLR(optimizer, 0.1, 16))
    with pytest.raises(OptimizationError, match=r"^a group of parameters was added .* OneCycleLR"):
        Trainer(callbacks=[AddsEarly(), Innocent()], **QUIET).fit(net, batches())
