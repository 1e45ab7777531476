"""The Tuner and its callbacks: learning rates and batch sizes that are looked for."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch.utils.data import DataLoader

from programs import differs, error

LOSSES = '`lr_find(...).results["loss"]`'
SUGGESTION = "`lr_find(...).suggestion()`"


def _tuner(x: Any, trainer: Any) -> Any:
    package = x.package.__name__
    where = package if package == "trainer_hooks" else f"{package}.tuner"
    return importlib.import_module(where).Tuner(trainer)


def _share(x: Any, found: Any) -> float:
    """Return what part of the first loss is told."""
    whole = x.Net().cost(next(iter(x.loader(1))))
    return round(found.results["loss"][0] / float(whole), 1)


def _sized(x: Any) -> Any:
    class Net(x.Net):
        def __init__(self, batch_size=2):
            super().__init__()
            self.batch_size = batch_size

        def train_dataloader(self):
            return DataLoader(x.loader(20).dataset, batch_size=self.batch_size)

        def val_dataloader(self):
            return x.loader(1)

    return Net


@differs(LOSSES, first=(0.5, 1.0))
def lr_find(x):
    """The rates that are tried, the losses, and that nothing else has changed."""
    module, trainer = x.Net(), x.trainer()
    found = _tuner(x, trainer).lr_find(
        module, x.loader(20), min_lr=1e-4, max_lr=1.0, num_training=8, early_stop_threshold=None
    )
    return {
        "rates": found.results["lr"], "first": _share(x, found),
        "suggestion": found.suggestion(skip_begin=1, skip_end=1), "weights": x.weights(module),
        "lr": module.lr, "step": trainer.global_step,
    }  # fmt: skip


@differs(LOSSES, first=(0.5, 1.0))
def lr_find_linear(x):
    """Rates in even steps."""
    found = _tuner(x, x.trainer()).lr_find(
        x.Net(), x.loader(20), min_lr=0.1, max_lr=0.5, num_training=5, mode="linear",
        update_attr=False,
    )  # fmt: skip
    return {"rates": found.results["lr"], "first": _share(x, found)}


@differs(SUGGESTION, lr=(0.025118864315095798, 0.03414548873833601))
@differs(
    "Callbacks of the trainer in a search of the `Tuner`",
    calls=(["setup(fit)", "teardown(fit)"], []),
)
def lr_find_sets_the_attribute(x):
    """The module's `lr` is set to the suggestion, and which hooks of a callback are called."""
    module, hooks = x.Net(), x.hooks("setup", "on_fit_start", "on_train_start", "teardown")
    found = _tuner(x, x.trainer(hooks)).lr_find(
        module, x.loader(40), min_lr=1e-4, max_lr=1.0, num_training=30, early_stop_threshold=None
    )
    return {"is set": module.lr == found.suggestion(), "lr": module.lr, "calls": hooks.calls}


def scale_batch_size(x):
    """Batches are doubled, trial by trial."""
    module, trainer = _sized(x)(), x.trainer()
    size = _tuner(x, trainer).scale_batch_size(module, init_val=2, max_trials=3, steps_per_trial=2)
    return {
        "size": size, "set": module.batch_size, "weights": x.weights(module),
        "step": trainer.global_step,
    }  # fmt: skip


def scale_batch_size_by_search(x):
    """Until memory runs out, and then between."""

    class Net(_sized(x)):
        def training_step(self, batch, batch_idx):
            if len(batch) > 13:
                raise RuntimeError("CUDA out of memory.")
            return super().training_step(batch, batch_idx)

    module = Net()
    size = _tuner(x, x.trainer()).scale_batch_size(
        module, mode="binsearch", init_val=2, max_trials=20, steps_per_trial=1
    )
    return {"size": size, "set": module.batch_size}


def batch_size_finder(x):
    """The callback before a fit; the fit goes on with the size found."""
    module = _sized(x)()
    finder = x.callbacks.BatchSizeFinder(init_val=2, max_trials=2, steps_per_trial=1)
    trainer = x.trainer(finder)
    trainer.fit(module)
    return {
        "size": module.batch_size, "step": trainer.global_step, "weights": x.weights(module),
        "best": finder.optimal_batch_size,
    }  # fmt: skip


@differs(LOSSES, first=(0.5, 1.0))
def learning_rate_finder(x):
    """The callback before a fit."""
    module = x.Net()
    finder = x.callbacks.LearningRateFinder(
        min_lr=1e-3, max_lr=1.0, num_training_steps=10, early_stop_threshold=None,
        update_attr=False,
    )  # fmt: skip
    trainer = x.trainer(finder)
    trainer.fit(module, x.loader(20))
    return {
        "rates": finder.optimal_lr.results["lr"], "first": _share(x, finder.optimal_lr),
        "step": trainer.global_step, "weights": x.weights(module),
    }  # fmt: skip


@differs(
    "The class of some errors",
    rate=(error("AttributeError"), error("UsageError")),
)
def without_what_is_looked_for(x):
    """A module without the attribute."""

    class Bare(x.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def training_step(self, batch, batch_idx):
            return self.layer(batch).mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    return {
        "rate": x.error(lambda: _tuner(x, x.trainer()).lr_find(
            Bare(), x.loader(20), num_training=4
        )),
        "size": x.error(lambda: _tuner(x, x.trainer()).scale_batch_size(Bare(), x.loader(20))),
    }  # fmt: skip
