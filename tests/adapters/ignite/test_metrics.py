"""`engine.state.metrics` as handlers of Ignite see it at each event of a training."""

from __future__ import annotations

import pytest
import torch
from quiet_trainers import QUIET_OPTIONS
from torch.utils.data import DataLoader

import trainer_hooks
from trainer_hooks.adapters.ignite import attach

ignite = pytest.importorskip("ignite", reason="needs pytorch-ignite")

pytestmark = pytest.mark.filterwarnings("ignore")

ROWS = torch.arange(24.0).reshape(6, 4) / 24


class Net(trainer_hooks.Module):
    """A layer that logs its loss, and of each epoch the mean."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        torch.nn.init.constant_(self.layer.weight, 0.5)

    def training_step(self, batch, batch_idx):
        loss = self.layer(batch).square().mean()
        self.log("loss", loss, on_step=True, on_epoch=False)
        self.log("mean_loss", loss, on_step=False, on_epoch=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)


def writing_down(engine, seen):
    """Add a handler to each event that batches and epochs of a training have."""
    from ignite.engine import Events

    def look(engine, event):
        shown = {name: round(float(value), 5) for name, value in engine.state.metrics.items()}
        seen.append((event.name, shown))

    for event in (
        Events.EPOCH_STARTED, Events.ITERATION_STARTED, Events.ITERATION_COMPLETED,
        Events.EPOCH_COMPLETED,
    ):  # fmt: skip
        engine.add_event_handler(event, look, event)


def seen_there():
    from ignite.engine import Engine
    from ignite.metrics import Average

    torch.manual_seed(1)
    module, seen = Net(), []
    optimizer = module.configure_optimizers()

    def step(engine, batch):
        optimizer.zero_grad()
        loss = module.layer(batch).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    engine = Engine(step)
    Average().attach(engine, "loss", usage="batch_wise")
    Average().attach(engine, "mean_loss")
    writing_down(engine, seen)
    engine.run(DataLoader(ROWS, batch_size=2), max_epochs=2)
    return seen


def fit_here(handlers):
    torch.manual_seed(1)
    trainer = trainer_hooks.Trainer(callbacks=[attach(handlers)], max_epochs=2, **QUIET_OPTIONS)
    trainer.fit(Net(), DataLoader(ROWS, batch_size=2))


def test_metrics_are_there_at_the_events_of_a_batch():
    """A handler of each batch reads the batch's values, as of a metric that is taken batchwise."""
    seen = []
    fit_here(lambda train, _: writing_down(train, seen))
    assert seen == seen_there()


def test_metrics_of_a_handlers_own_stay():
    """What a handler writes into the metrics is there at the next event, beside the logged ones."""
    from ignite.engine import Events

    seen = []

    def handlers(train, _):
        @train.on(Events.ITERATION_COMPLETED)
        def write(engine):
            engine.state.metrics["mine"] = engine.state.iteration

        @train.on(Events.ITERATION_STARTED)
        def read(engine):
            seen.append((engine.state.metrics.get("mine"), "loss" in engine.state.metrics))

    fit_here(handlers)
    assert seen == [(None, False), *((count, True) for count in range(1, 6))]


def test_a_logged_value_is_read_only_where_a_handler_looks(monkeypatch):
    """To read a value waits for the device: handlers of batches that read none do not cost it."""
    from ignite.engine import Events

    reads = []
    item = torch.Tensor.item
    monkeypatch.setattr(torch.Tensor, "item", lambda this: reads.append(1) or item(this))
    counts = []

    def handlers(train, _):
        train.add_event_handler(Events.ITERATION_STARTED, lambda engine: counts.append(len(reads)))

    fit_here(handlers)
    assert len(set(counts[:3])) == 1
