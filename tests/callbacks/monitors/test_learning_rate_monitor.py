from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch.optim import SGD, Adam
from torch.optim.lr_scheduler import StepLR

from trainer_hooks import Callback, Time, Trainer, every, once
from trainer_hooks.callbacks import LearningRateMonitor
from trainer_hooks.errors import OptimizationError, TrainerHooksWarning, UsageError
from trainer_hooks.loggers import CSVLogger
from trainer_hooks.testing import TinyModule


def weight():
    return torch.nn.Parameter(torch.zeros(1))


def config(optimizer, interval="epoch", name=None):
    scheduler = StepLR(optimizer, step_size=1, gamma=0.5)
    return SimpleNamespace(scheduler=scheduler, interval=interval, name=name)


def test_without_a_logger(fake):
    """A fit without a logger is refused before it begins, with what to do; fast_dev_run is not."""
    with pytest.raises(UsageError, match=r"without a logger: .*Pass one"):
        fake(LearningRateMonitor()).fire("setup", "fit")
    fake(LearningRateMonitor()).fire("setup", "test")
    trainer = fake(LearningRateMonitor(), fast_dev_run=1, optimizers=[SGD([weight()], lr=0.1)])
    trainer.fit(1)
    assert trainer.logged == []


def test_groups_of_one_name(fake):
    """Two parameter groups with one name could not be told apart: an error."""
    groups = [{"params": [weight()], "name": "a"}, {"params": [weight()], "name": "a"}]
    trainer = fake(LearningRateMonitor(), logger=object(), optimizers=[SGD(groups, lr=0.1)])
    with pytest.raises(OptimizationError, match="parameter group name 'a' of SGD"):
        trainer.fit(1)


def logged_names(fake, optimizers, configs=(), **options):
    trainer = fake(
        LearningRateMonitor("epoch", **options),
        logger=object(),
        optimizers=optimizers,
        lr_scheduler_configs=list(configs),
    )
    trainer.fit(1)
    return trainer.logged[0][1]


def test_names_of_optimizers(fake):
    """The second optimizer of a class is counted; another class starts anew."""
    optimizers = [Adam([weight()], lr=0.1), Adam([weight()], lr=0.2), SGD([weight()], lr=0.3)]
    names = logged_names(fake, optimizers)
    assert names == {"lr-Adam": 0.1, "lr-Adam-1": 0.2, "lr-SGD": 0.3}


def test_names_of_groups(fake):
    """Several groups are numbered, unless they have names; a single named group keeps its own."""
    two = SGD([{"params": [weight()], "lr": 0.1}, {"params": [weight()], "lr": 0.2}])
    named = SGD([{"params": [weight()], "name": "a"}, {"params": [weight()]}], lr=0.3)
    one = SGD([{"params": [weight()], "name": "b"}], lr=0.4)
    assert logged_names(fake, [two, named, one]) == {
        "lr-SGD/pg1": 0.1,
        "lr-SGD/pg2": 0.2,
        "lr-SGD-1/a": 0.3,
        "lr-SGD-1/pg2": 0.3,
        "lr-SGD-2/b": 0.4,
    }


def test_scheduler_names_come_first(fake):
    """A scheduler's own name is used; optimizers with schedulers are counted first."""
    first, second, third = (Adam([weight()], lr=lr) for lr in (0.1, 0.2, 0.3))
    names = logged_names(
        fake, [first, second, third], [config(second, name="warmup"), config(third)]
    )
    assert names == {"warmup": 0.2, "lr-Adam": 0.3, "lr-Adam-1": 0.1}


def test_momentum_and_weight_decay(fake):
    """Momentum is SGD's momentum or Adam's first beta; both have a suffix."""
    optimizers = [SGD([weight()], lr=0.1, momentum=0.9), Adam([weight()], lr=0.1, weight_decay=0.3)]
    names = logged_names(fake, optimizers, log_momentum=True, log_weight_decay=True)
    assert names == {
        "lr-SGD": 0.1,
        "lr-SGD-momentum": 0.9,
        "lr-SGD-weight_decay": 0.0,
        "lr-Adam": 0.1,
        "lr-Adam-momentum": 0.9,
        "lr-Adam-weight_decay": 0.3,
    }


def test_optimizer_without_momentum(fake):
    """An optimizer that has none is told of, and no number is made up."""
    optimizers = [torch.optim.Adagrad([weight()], lr=0.1)]
    with pytest.warns(TrainerHooksWarning, match="log_momentum=True .*no momentum"):
        names = logged_names(fake, optimizers, log_momentum=True)
    assert set(names) == {"lr-Adagrad"}


def test_steps_are_logged_when_due(fake):
    """At steps it logs each log_every_n_steps, before the step, and nothing in between."""
    trainer = fake(
        monitor := LearningRateMonitor("step"),
        logger=object(),
        optimizers=[SGD([weight()], lr=0.5)],
        log_every_n_steps=3,
    )
    trainer.fit(2)
    assert [step for step, _ in trainer.logged] == [2, 5]
    assert trainer.callback_metrics["lr-SGD"].item() == 0.5
    assert monitor.lrs == {"lr-SGD": [0.5, 0.5]}


def test_accumulated_batches_are_one_step(fake):
    """The batches of one window log once, also when the fit goes on in the middle of it."""
    trainer = fake(
        LearningRateMonitor("step"),
        logger=object(),
        optimizers=[SGD([weight()], lr=0.5)],
        log_every_n_steps=1,
    )
    trainer.start()
    for _ in range(3):
        trainer.fire("on_train_batch_start", None, 0)
        trainer.progress.batches_in_window = 1
    assert len(trainer.logged) == 1
    trainer.start()
    trainer.fire("on_train_batch_start", None, 0)
    assert len(trainer.logged) == 1


def test_without_interval_each_scheduler_counts(fake):
    """By default a rate is logged when its scheduler steps; without one, at both."""
    by_step, by_epoch, alone = (SGD([weight()], lr=lr) for lr in (0.1, 0.2, 0.3))
    trainer = fake(
        LearningRateMonitor(),
        logger=object(),
        optimizers=[by_step, by_epoch, alone],
        lr_scheduler_configs=[config(by_step, "step"), config(by_epoch, "epoch")],
        log_every_n_steps=4,
    )
    trainer.fit(1)
    assert trainer.logged == [
        (0, {"lr-SGD-1": 0.2, "lr-SGD-2": 0.3}),
        (3, {"lr-SGD": 0.1, "lr-SGD-2": 0.3}),
    ]


def test_steps_alone_log_nothing_at_epochs(fake):
    """logging_interval="step" logs nothing at the start of an epoch, "epoch" nothing at steps."""
    for interval, steps in (("step", [1, 3]), ("epoch", [0])):
        trainer = fake(
            LearningRateMonitor(interval), logger=object(), optimizers=[SGD([weight()], lr=0.1)]
        )
        trainer.fit(1)
        assert [step for step, _ in trainer.logged] == steps


def test_two_schedulers_of_one_optimizer(fake):
    """An optimizer is listed once, however many schedulers it has."""
    optimizer = SGD([weight()], lr=0.1)
    names = logged_names(fake, [optimizer], [config(optimizer), config(optimizer)])
    assert names == {"lr-SGD": 0.1}


def test_history_is_of_one_fit(fake):
    """`lrs` starts anew with each fit."""
    monitor = LearningRateMonitor("epoch")
    for _ in range(2):
        trainer = fake(monitor, logger=object(), optimizers=[SGD([weight()], lr=0.1)])
        trainer.fit(2)
        assert monitor.lrs == {"lr-SGD": [0.1, 0.1]}


@pytest.mark.parametrize(
    ("interval", "rates"),
    [
        ("2ba", {2: 0.1, 4: 0.05, 6: 0.025}), (Time("4sp"), {2: 0.1, 4: 0.05, 6: 0.025}),
        ("1ep", {3: 0.05, 6: 0.025}), ("0.5dur", {3: 0.05, 6: 0.025}),
        (every("1ep") | once("1ba"), {1: 0.1, 3: 0.05, 6: 0.025}),
        (lambda clock: clock.batches == 5, {5: 0.05}),
    ],
)  # fmt: skip
def test_every_so_often(interval, rates, tmp_path):
    """By any unit or filter the rates are logged after that batch, or epoch, and its schedulers."""
    logged = []

    class Watch(Callback):
        def on_log(self, trainer, module, metrics, step) -> None:
            if "lr-SGD" in metrics:
                logged.append((step, metrics["lr-SGD"]))

    trainer = Trainer(
        accelerator="cpu", max_epochs=2, callbacks=[LearningRateMonitor(interval), Watch()],
        plugins=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, log_every_n_steps=100, logger=CSVLogger(tmp_path),
    )  # fmt: skip
    trainer.fit(TinyModule())
    assert logged == [(step, pytest.approx(rate)) for step, rate in rates.items()]


def test_what_can_be_read_of_it(fake):
    """Names, rates, momenta and weight decays stand under Lightning's attributes."""
    monitor = LearningRateMonitor("epoch", log_momentum=True, log_weight_decay=True)
    groups = [{"params": [weight()], "name": "a"}, {"params": [weight()], "weight_decay": 0.2}]
    optimizers = [Adam(groups, lr=0.1), SGD([weight()], lr=0.2, momentum=0.5)]
    fake(monitor, logger=object(), optimizers=optimizers).fit(1)
    assert monitor.lr_sch_names == ["lr-Adam", "lr-SGD"]
    assert monitor.lrs == {"lr-Adam/a": [0.1], "lr-Adam/pg2": [0.1], "lr-SGD": [0.2]}
    assert monitor.last_momentum_values == {
        "lr-Adam/a-momentum": 0.9,
        "lr-Adam/pg2-momentum": 0.9,
        "lr-SGD-momentum": 0.5,
    }
    assert monitor.last_weight_decay_values == {
        "lr-Adam/a-weight_decay": 0.0,
        "lr-Adam/pg2-weight_decay": 0.2,
        "lr-SGD-weight_decay": 0.0,
    }


def test_a_group_without_a_rate(fake):
    """Adafactor with relative steps has None as its rate; the other groups' rates are logged."""
    monitor = LearningRateMonitor("epoch", log_momentum=True)
    relative = SGD([{"params": [weight()]}, {"params": [weight()]}], lr=0.2)
    relative.param_groups[0]["lr"] = None
    fake(monitor, logger=object(), optimizers=[relative]).fit(1)
    assert monitor.lrs == {"lr-SGD/pg2": [0.2]}
