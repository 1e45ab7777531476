"""Composer's built-in callbacks are Composer's and ours, and can be subclassed for its events."""

from __future__ import annotations

import pickle

import pytest
from quiet_trainers import QUIET_OPTIONS

import trainer_hooks
from trainer_hooks.compat import composer
from trainer_hooks.compat.composer import callbacks


@pytest.mark.parametrize("name", callbacks.__all__)
def test_a_built_in_callback_is_composers_and_ours(name):
    """It is a subclass of both classes `Callback`, and pickled by its name."""
    kind = getattr(callbacks, name)
    assert issubclass(kind, composer.Callback)
    assert issubclass(kind, trainer_hooks.Callback)
    assert issubclass(kind, getattr(trainer_hooks.callbacks, name, kind) if name in
                      trainer_hooks.callbacks.__all__ else kind)  # fmt: skip
    assert pickle.loads(pickle.dumps(kind)) is kind
    assert not kind.receives_events


def test_a_subclass_overrides_events_beside_the_hooks(make):
    """In Composer's Trainer: the built-in's own work is done, and each event is received."""
    seen = []

    class Mine(callbacks.LRMonitor):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            super().on_train_batch_end(trainer, module, outputs, batch, batch_idx)
            seen.append("hook")

        def init(self, state, logger):
            seen.append("init")

        def batch_end(self, state, logger):
            super().batch_end(state, logger)
            seen.append(int(state.timestamp.batch))

    trainer = make(Mine(), callbacks.SpeedMonitor(), max_duration="2ba")
    trainer.fit()
    assert [one for one in seen if one != "hook"] == ["init", 1, 2]
    assert seen.count("hook") == 2


def test_a_subclass_takes_part_in_a_plain_trainer():
    """The events come where such a callback is; without one there is no engine."""
    import torch

    seen = []

    class Mine(callbacks.RuntimeEstimator):
        def epoch_end(self, state, logger):
            seen.append(int(state.timestamp.epoch))

    class Net(trainer_hooks.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def training_step(self, batch, batch_idx):
            return self.layer(batch).mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    for callback, events in ((callbacks.RuntimeEstimator(), []), (Mine(), [1])):
        trainer = trainer_hooks.Trainer(max_epochs=1, **QUIET_OPTIONS, callbacks=[callback])
        trainer.fit(Net(), [torch.ones(1, 2)] * 2)
        trainer.close()
        assert seen == events
        names = [type(one).__name__ for one in trainer.callbacks]
        assert ("EngineEvents" in names) is bool(events)


@pytest.mark.parametrize("kind", [callbacks.LRMonitor, callbacks.FreeOutputs])
def test_an_unknown_argument_of_a_built_in_callback_is_an_error(kind):
    """Composer's base class takes any, and these take none."""
    composer.Callback(3, interval=3)
    with pytest.raises(TypeError, match="unexpected keyword argument 'interval'"):
        kind(interval=3)
