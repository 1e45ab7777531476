"""Callbacks of other frameworks in random configurations, each imported where it is drawn."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

STAND_INS = Path(__file__).parents[1] / "adapters" / "composer" / "stand_ins"

MODULES = {
    "lightning": ("pytorch_lightning",),
    "accelerated": ("pytorch_accelerated.callbacks",),
    "transformers": ("transformers.trainer_callback", "transformers.training_args"),
    "ignite": ("ignite.engine", "ignite.handlers"),
    "composer": ("composer",),
}
"""The modules that a framework's guests need."""

GUESTS = (
    "ignite: stateless",
    "ignite: average",
    "ignite: early stopping",
    "ignite: schedule in a function",
    "accelerated: stateless",
    "accelerated: stateful",
    "accelerated: early stopping",
    "transformers: stateless",
    "transformers: stateful",
    "lightning: stateless",
    "lightning: stateful",
    "lightning: average",
    "lightning: early stopping",
    "composer: stateless",
    "composer: stateful",
)


def framework_of(guest: str) -> str:
    """Return the framework of a guest, empty if there is none."""
    return "" if guest == "none" else guest.partition(":")[0]


def prepare(framework: str) -> None:
    """Make a framework importable."""
    if framework == "composer":
        sys.path.insert(0, str(STAND_INS))


class Tally:
    """Counts, and draws from the global random numbers and from a generator of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.count, self.noise = 0, 0.0
        self.own = random.Random(41)

    def note(self) -> None:
        self.count += 1
        drawn = random.random() + float(np.random.rand()) + float(torch.rand(()))
        self.noise = self.noise * 0.5 + drawn + self.own.random()

    def state_dict(self, *_: Any) -> dict[str, Any]:
        version, numbers, gauss = self.own.getstate()
        own = [version, list(numbers), gauss]
        return {"count": self.count, "noise": self.noise, "own": own}

    def load_state_dict(self, *states: Any) -> None:
        state = states[-1]
        self.count, self.noise = state["count"], state["noise"]
        version, numbers, gauss = state["own"]
        self.own.setstate((version, tuple(numbers), gauss))


def make_guest(name: str, monitor: str, module: Any) -> Any:
    """Return a callback of another framework.

    Args:
        name: one of `GUESTS`.
        monitor: the metric for those that watch one.
        module: the module that is trained.
    """
    framework, _, kind = name.partition(": ")
    makers = {
        "lightning": _lightning,
        "accelerated": _accelerated,
        "transformers": _transformers,
        "ignite": _ignite,
        "composer": _composer,
    }
    return makers[framework](kind, monitor, module)


def _lightning(kind: str, monitor: str, module: Any) -> Any:
    from pytorch_lightning import Callback
    from pytorch_lightning.callbacks import EarlyStopping, EMAWeightAveraging

    if kind == "average":
        return EMAWeightAveraging(decay=0.5)
    if kind == "early stopping":
        return EarlyStopping(monitor, patience=1, strict=False, min_delta=0.1)

    class Stateless(Callback):
        def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
            pl_module.log("guest", float(batch_idx), on_step=True, on_epoch=True)
            torch.rand(1)

    class Stateful(Tally, Callback):
        def on_train_batch_start(self, *args):
            self.note()

        def on_validation_end(self, *args):
            self.note()

        def on_train_epoch_end(self, trainer, pl_module):
            pl_module.log("guest", self.noise)

    return Stateful() if kind == "stateful" else Stateless()


def _accelerated(kind: str, monitor: str, module: Any) -> Any:
    from pytorch_accelerated.callbacks import EarlyStoppingCallback, TrainerCallback

    if kind == "early stopping":
        return EarlyStoppingCallback(
            early_stopping_patience=1, watch_metric=monitor, early_stopping_threshold=0.1
        )

    class Stateless(TrainerCallback):
        def on_train_step_end(self, trainer, batch, batch_output, **kwargs):
            torch.rand(1)

    class Stateful(Tally, TrainerCallback):
        def on_train_step_end(self, trainer, batch, batch_output, **kwargs):
            self.note()

        def on_training_run_epoch_end(self, trainer, **kwargs):
            self.note()

    return Stateful() if kind == "stateful" else Stateless()


def _transformers(kind: str, monitor: str, module: Any) -> Any:
    from transformers.trainer_callback import ExportableState, TrainerCallback

    class Stateless(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            torch.rand(1)
            if state.global_step % 5 == 2:
                control.should_evaluate = True

    class Stateful(Tally, TrainerCallback, ExportableState):
        def on_step_end(self, args, state, control, **kwargs):
            self.note()

        def on_epoch_end(self, args, state, control, **kwargs):
            self.note()

        def state(self):
            return {"args": {}, "attributes": self.state_dict()}

        @classmethod
        def from_state(cls, state):
            made = cls()
            made.load_state_dict(state["attributes"])
            return made

        def __setattr__(self, name, value):
            # transformers restores attributes one by one
            if name == "own" and isinstance(value, list):
                version, numbers, gauss = value
                value = random.Random()
                value.setstate((version, tuple(numbers), gauss))
            super().__setattr__(name, value)

    return Stateful() if kind == "stateful" else Stateless()


def _ignite(kind: str, monitor: str, module: Any) -> Any:
    from ignite.engine import Engine, Events
    from ignite.handlers import EarlyStopping, EMAHandler, LinearCyclicalScheduler

    from trainer_hooks.adapters.ignite import adapt, attach

    def draw(engine):
        torch.rand(1)

    def score(engine):
        return -float(engine.state.metrics.get(monitor, 0.0))

    if kind == "average":
        return EMAHandler(module.layers, momentum=0.1)
    if kind == "early stopping":
        return EarlyStopping(1, score, Engine(lambda engine, batch: None), min_delta=0.1)
    if kind == "schedule in a function":
        weight = torch.nn.Parameter(torch.zeros(1))
        optimizer = torch.optim.SGD([weight], 0.1)
        scheduler = LinearCyclicalScheduler(optimizer, "lr", 0.1, 1.0, 5)

        def shift(engine):
            # so that a schedule that begins anew is seen in the weights
            with torch.no_grad():
                module.layers[0].bias += 0.01 * optimizer.param_groups[0]["lr"]

        def handlers(train, validation):
            train.add_event_handler(Events.ITERATION_STARTED, scheduler)
            train.add_event_handler(Events.ITERATION_COMPLETED, shift)

        return attach(handlers)
    return adapt(draw, event=Events.ITERATION_COMPLETED)


def _composer(kind: str, monitor: str, module: Any) -> Any:
    from composer import Callback

    class Stateless(Callback):
        def batch_end(self, state, logger):
            torch.rand(1)

    class Stateful(Tally, Callback):
        def batch_end(self, state, logger):
            self.note()

        def eval_end(self, state, logger):
            self.note()

        def epoch_end(self, state, logger):
            logger.log_metrics({"guest": self.noise})

    return Stateful() if kind == "stateful" else Stateless()
