"""The states of handlers that the function of `attach` registers come back on a resume."""

from __future__ import annotations

from functools import partial

import pytest
from quiet_trainers import QUIET_OPTIONS

pytest.importorskip("ignite")

import torch
from ignite.engine import Engine, Events
from ignite.handlers import (
    Checkpoint,
    DiskSaver,
    EarlyStopping,
    EMAHandler,
    create_lr_scheduler_with_warmup,
)
from ignite.handlers.param_scheduler import LinearCyclicalScheduler

from trainer_hooks import Module, Trainer
from trainer_hooks.adapters.ignite import adapt, attach
from trainer_hooks.adapters.ignite.attached_handlers import load_state, state_of
from trainer_hooks.errors import CheckpointError

pytestmark = pytest.mark.slow  # the import of the framework alone is

OFF = {**QUIET_OPTIONS, "enable_run_manifest": False}


class Run:
    """One process of a training: a module, its optimizer, and a trainer."""

    def __init__(self, function, epochs, path=None) -> None:
        torch.manual_seed(0)
        self.layer = layer = torch.nn.Linear(4, 1)
        self.optimizer = optimizer = torch.optim.SGD(layer.parameters(), 0.05)

        class Net(Module):
            def __init__(self) -> None:
                super().__init__()
                self.layer = layer

            def training_step(self, batch, batch_idx):
                return self.layer(batch).pow(2).mean()

            def configure_optimizers(self):
                return optimizer

        callback = attach(lambda train, validation: function(self, train))
        self.trainer = Trainer(callbacks=[callback], max_epochs=epochs, **OFF)
        self.trainer.fit(Net(), list(torch.rand(4, 2, 4)), ckpt_path=path)

    @property
    def rate(self) -> float:
        return self.optimizer.param_groups[0]["lr"]


def warmup(run, train) -> None:
    base = torch.optim.lr_scheduler.ExponentialLR(run.optimizer, 0.8)
    train.add_event_handler(Events.ITERATION_STARTED, create_lr_scheduler_with_warmup(base, 0.0, 4))


def cyclical(run, train) -> None:
    scheduler = LinearCyclicalScheduler(run.optimizer, "lr", 0.1, 0.01, 7)
    # as a closure, with a filter, in a list of events
    train.add_event_handler(
        Events.ITERATION_STARTED(every=1) | Events.EPOCH_STARTED, lambda engine: scheduler(engine)
    )


def bound(run, train) -> None:
    class Holder:
        """A handler of somebody's, which holds one of Ignite, as MONAI's CheckpointSaver does."""

        def __init__(self) -> None:
            self.inner = LinearCyclicalScheduler(run.optimizer, "lr", 0.1, 0.01, 7)

        def step(self, engine, _extra) -> None:
            self.inner(engine)

    train.add_event_handler(Events.ITERATION_STARTED, partial(Holder().step, _extra=1))


def torch_scheduler(run, train) -> None:
    scheduler = torch.optim.lr_scheduler.ExponentialLR(run.optimizer, 0.8)
    train.add_event_handler(Events.ITERATION_COMPLETED, lambda: scheduler.step())


def several(run, train) -> None:
    cyclical(run, train)
    warmup(run, train)
    train.add_event_handler(
        Events.EPOCH_COMPLETED, EarlyStopping(9, lambda engine: -engine.state.epoch, train)
    )
    train.add_event_handler(Events.EPOCH_COMPLETED, lambda engine: None)


@pytest.mark.parametrize("function", [warmup, cyclical, bound, torch_scheduler, several])
def test_a_resumed_run_is_as_the_whole(function, tmp_path) -> None:
    """Handlers that are added themselves, bound, wrapped, in closures, or held by another."""
    whole = Run(function, 3)
    Run(function, 1).trainer.save_checkpoint(tmp_path / "a.ckpt")
    resumed = Run(function, 3, tmp_path / "a.ckpt")
    assert resumed.rate == whole.rate
    assert torch.equal(resumed.layer.weight, whole.layer.weight)


def test_a_saver_removes_its_old_files(tmp_path) -> None:
    """Its list of files comes back."""

    def saver(run, train) -> None:
        disk = DiskSaver(tmp_path / "files", require_empty=False)
        train.add_event_handler(
            Events.EPOCH_COMPLETED, Checkpoint({"net": run.layer}, disk, n_saved=1)
        )

    Run(saver, 1).trainer.save_checkpoint(tmp_path / "a.ckpt")
    Run(saver, 2, tmp_path / "a.ckpt")
    assert len(list((tmp_path / "files").iterdir())) == 1


def test_averaged_weights_come_back(tmp_path) -> None:
    """Those of an EMAHandler, which has no state of its own."""
    averages = []

    def average(run, train) -> None:
        handler = EMAHandler(run.layer, momentum=0.1)
        handler.attach(train, event=Events.ITERATION_COMPLETED)
        averages.append(handler)

    Run(average, 3)
    whole = averages[-1].ema_model.weight
    Run(average, 1).trainer.save_checkpoint(tmp_path / "a.ckpt")
    Run(average, 3, tmp_path / "a.ckpt")
    assert torch.equal(averages[-1].ema_model.weight, whole)


@pytest.mark.parametrize("handle_buffers", ["copy", "update"])
def test_averaged_buffers_share_memory_as_before(handle_buffers) -> None:
    """With "copy" the handler's buffers are the model's own, which a later change shows."""

    def build():
        norm = torch.nn.BatchNorm1d(2)
        return norm, EMAHandler(norm, momentum=0.5, handle_buffers=handle_buffers)

    norm, handler = build()
    engine = Engine(lambda engine, batch: norm(batch).sum().item())
    handler.attach(engine)
    engine.run(list(torch.rand(2, 4, 2)))
    state, weights = state_of(handler), {k: v.clone() for k, v in norm.state_dict().items()}
    resumed, other = build()
    resumed.load_state_dict(weights)
    load_state(other, state)
    for changed in (norm, resumed):
        changed.running_mean.fill_(7.0)
    assert torch.equal(other.ema_model.running_mean, handler.ema_model.running_mean)
    assert (other.ema_model.running_mean == 7).all() == (handle_buffers == "copy")


def test_other_handlers_are_refused_by_name(tmp_path) -> None:
    """A resume cannot know where a state belongs."""
    Run(several, 1).trainer.save_checkpoint(tmp_path / "a.ckpt")
    with pytest.raises(
        CheckpointError, match=r"states of ConcatScheduler, EarlyStopping, Linear.*attaches Linear"
    ):
        Run(cyclical, 2, tmp_path / "a.ckpt")


def test_a_function_without_handlers_of_a_state_has_none() -> None:
    """The module, the optimizer and the engine are the run's own."""
    layer = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(layer.parameters(), 0.1)

    def plain(train, validation) -> None:
        train.add_event_handler(Events.STARTED, lambda engine: (layer, optimizer, train))
        train.add_event_handler(Events.STARTED, layer.float)

    assert not attach(plain).is_stateful
    assert not adapt(lambda: None, event=Events.STARTED).is_stateful
