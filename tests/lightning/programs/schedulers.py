"""Learning rate schedulers: by epoch, by step, by a monitor, by hand."""

from __future__ import annotations

from typing import Any

from torch.optim import SGD
from torch.optim.lr_scheduler import ExponentialLR, LambdaLR, OneCycleLR, ReduceLROnPlateau, StepLR

from programs import differs


def _rates(x: Any, make: Any, *, batches: int = 4, val: Any = None, **options: Any) -> Any:
    """Fit with what `make` returns for an optimizer; tell the rate at each batch and at the end."""
    seen: list[Any] = []

    class Net(x.Net):
        def configure_optimizers(self):
            optimizer = SGD(self.parameters(), lr=0.1)
            return {"optimizer": optimizer, "lr_scheduler": make(optimizer)}

        def on_train_batch_start(self, batch, batch_idx):
            seen.append(self.trainer.optimizers[0].param_groups[0]["lr"])

    module = Net()
    trainer = x.trainer(**{"max_epochs": 3, **options})
    trainer.fit(module, x.loader(batches), val)
    config = trainer.lr_scheduler_configs[0]
    return {
        "rates": seen,
        "last": trainer.optimizers[0].param_groups[0]["lr"],
        "weights": x.weights(module),
        "config": [
            config.interval, config.frequency, config.monitor, config.strict,
            config.reduce_on_plateau, config.name, type(config.scheduler).__name__,
        ],
    }  # fmt: skip


def by_epoch(x):
    """A scheduler alone steps after each epoch."""
    return _rates(x, lambda optimizer: StepLR(optimizer, 1, 0.5))


def by_epoch_with_frequency(x):
    """Every second epoch."""
    return _rates(
        x,
        lambda optimizer: {"scheduler": StepLR(optimizer, 1, 0.5), "frequency": 2},
        max_epochs=5,
    )


def by_step(x):
    """After each optimizer step."""
    return _rates(
        x, lambda optimizer: {"scheduler": ExponentialLR(optimizer, 0.9), "interval": "step"}
    )


@differs(
    "`frequency` of a scheduler that steps by step",
    changes=([3, 7, 11], [3, 6, 9]),
)
def by_step_with_frequency(x):
    """After every third step, with four batches in an epoch."""
    rates = _rates(
        x,
        lambda optimizer: {
            "scheduler": ExponentialLR(optimizer, 0.9), "interval": "step", "frequency": 3,
        },
    )["rates"]  # fmt: skip
    return {"changes": [i for i, rate in enumerate(rates) if i and rate != rates[i - 1]]}


def by_step_with_accumulation(x):
    """Steps are optimizer steps, not batches."""
    return _rates(
        x,
        lambda optimizer: {"scheduler": ExponentialLR(optimizer, 0.9), "interval": "step"},
        accumulate_grad_batches=3,
        batches=5,
    )


def one_cycle(x):
    """A cycle over the estimated steps."""

    class Net(x.Net):
        def configure_optimizers(self):
            optimizer = SGD(self.parameters(), lr=0.1, momentum=0.9)
            steps = self.trainer.estimated_stepping_batches
            cycle = OneCycleLR(optimizer, max_lr=0.1, total_steps=steps)
            return [optimizer], [{"scheduler": cycle, "interval": "step"}]

    module = Net()
    trainer = x.trainer(max_epochs=3)
    trainer.fit(module, x.loader(4))
    return {"weights": x.weights(module), "last": trainer.optimizers[0].param_groups[0]["lr"]}


def plateau(x):
    """By a monitored value, after each validation."""
    return _rates(
        x,
        lambda optimizer: {
            "scheduler": ReduceLROnPlateau(optimizer, mode="max", factor=0.5, patience=0),
            "monitor": "val",
        },
        val=x.loader(2),
        max_epochs=4,
    )


def plateau_with_monitor_beside(x):
    """The monitor may stand beside the scheduler."""

    class Net(x.Net):
        def configure_optimizers(self):
            optimizer = SGD(self.parameters(), lr=0.1)
            scheduler = ReduceLROnPlateau(optimizer, mode="max", factor=0.5, patience=0)
            return {"optimizer": optimizer, "lr_scheduler": scheduler, "monitor": "val"}

    module = Net()
    trainer = x.trainer(max_epochs=4)
    trainer.fit(module, x.loader(4), x.loader(2))
    return {"weights": x.weights(module), "last": trainer.optimizers[0].param_groups[0]["lr"]}


def plateau_on_a_training_value(x):
    """The monitored value may be logged in training."""

    class Net(x.Net):
        def training_step(self, batch, batch_idx):
            loss = self.cost(batch)
            self.log("loss", loss, on_step=False, on_epoch=True)
            return loss

        def configure_optimizers(self):
            optimizer = SGD(self.parameters(), lr=0.1)
            scheduler = ReduceLROnPlateau(optimizer, mode="max", factor=0.5, patience=0)
            return {
                "optimizer": optimizer,
                "lr_scheduler": {"scheduler": scheduler, "monitor": "loss"},
            }

    module = Net()
    trainer = x.trainer(max_epochs=4)
    trainer.fit(module, x.loader(4))
    return {"weights": x.weights(module), "last": trainer.optimizers[0].param_groups[0]["lr"]}


def plateau_by_step(x):
    """A plateau with the interval of steps."""

    class Net(x.Net):
        def training_step(self, batch, batch_idx):
            loss = self.cost(batch)
            self.log("loss", loss)
            return loss

        def configure_optimizers(self):
            optimizer = SGD(self.parameters(), lr=0.1)
            scheduler = ReduceLROnPlateau(optimizer, mode="max", factor=0.5, patience=0)
            settings = {"scheduler": scheduler, "monitor": "loss", "interval": "step"}
            return {"optimizer": optimizer, "lr_scheduler": {**settings, "frequency": 2}}

    module = Net()
    trainer = x.trainer(max_epochs=2)
    trainer.fit(module, x.loader(4))
    return {"weights": x.weights(module), "last": trainer.optimizers[0].param_groups[0]["lr"]}


def plateau_on_a_missing_value(x):
    """An unknown monitor is refused, unless `strict` is off."""

    def make(**more):
        return lambda optimizer: {
            "scheduler": ReduceLROnPlateau(optimizer), "monitor": "nothing", **more,
        }  # fmt: skip

    return {
        "strict": x.error(lambda: _rates(x, make())),
        "not strict": _rates(x, make(strict=False))["rates"],
    }


def plateau_without_validation_each_epoch(x):
    """Validation in every second epoch: the monitor is there when it steps."""
    return _rates(
        x,
        lambda optimizer: {
            "scheduler": ReduceLROnPlateau(optimizer, mode="max", factor=0.5, patience=0),
            "monitor": "val", "frequency": 2,
        },
        val=x.loader(2), max_epochs=4, check_val_every_n_epoch=2,
    )  # fmt: skip


def lr_scheduler_step_override(x):
    """The override is given scheduler and metric."""
    seen = []

    class Net(x.Net):
        def configure_optimizers(self):
            optimizer = SGD(self.parameters(), lr=0.1)
            return [optimizer], [
                {"scheduler": StepLR(optimizer, 1, 0.5), "interval": "epoch", "monitor": "val"}
            ]

        def lr_scheduler_step(self, scheduler, metric):
            seen.append([type(scheduler).__name__, metric])
            scheduler.step()

    trainer = x.trainer(max_epochs=3)
    trainer.fit(Net(), x.loader(2), x.loader(1))
    return {"seen": seen, "last": trainer.optimizers[0].param_groups[0]["lr"]}


def by_hand(x):
    """In manual optimization the module steps its schedulers."""

    class Net(x.Net):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch, batch_idx):
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(self.cost(batch))
            optimizer.step()
            if self.trainer.is_last_batch:
                self.lr_schedulers().step()

        def configure_optimizers(self):
            optimizer = SGD(self.parameters(), lr=0.1)
            return [optimizer], [StepLR(optimizer, 1, 0.5)]

    module = Net()
    trainer = x.trainer(max_epochs=3)
    trainer.fit(module, x.loader(2))
    return {"weights": x.weights(module), "last": trainer.optimizers[0].param_groups[0]["lr"]}


def several(x):
    """Two schedulers of one optimizer, one by step and one by epoch."""

    class Net(x.Net):
        def configure_optimizers(self):
            optimizer = SGD(self.parameters(), lr=0.1)
            by_step = LambdaLR(optimizer, lambda step: 0.9**step)
            return [optimizer], [
                {"scheduler": by_step, "interval": "step", "name": "steps"},
                ExponentialLR(optimizer, 0.5),
            ]

    module = Net()
    trainer = x.trainer(max_epochs=2)
    trainer.fit(module, x.loader(3))
    names = [type(config.scheduler).__name__ for config in trainer.lr_scheduler_configs]
    return {
        "weights": x.weights(module),
        "last": trainer.optimizers[0].param_groups[0]["lr"],
        "names": names,
    }


def rate_in_hooks(x):
    """When the rate changes, as the last hooks of an epoch see it."""
    seen = []

    class See(x.Callback):
        def _look(self, trainer, where):
            seen.append([where, trainer.optimizers[0].param_groups[0]["lr"]])

        def on_train_batch_end(self, trainer, *args):
            self._look(trainer, "batch end")

        def on_validation_start(self, trainer, *args):
            self._look(trainer, "validation")

        def on_train_epoch_end(self, trainer, *args):
            self._look(trainer, "epoch end")

    class Net(x.Net):
        def configure_optimizers(self):
            optimizer = SGD(self.parameters(), lr=0.1)
            return [optimizer], [StepLR(optimizer, 1, 0.5)]

    x.trainer(See(), max_epochs=2).fit(Net(), x.loader(2), x.loader(1))
    return {"seen": seen}
