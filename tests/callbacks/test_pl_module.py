"""Hooks of the built-in callbacks take the module by Lightning's keyword, for `super()` calls."""

from __future__ import annotations

import inspect
import sys

import pytest

import trainer_hooks
from trainer_hooks import Callback
from trainer_hooks.callbacks import EarlyStopping, GradientAccumulationScheduler, Timer
from trainer_hooks.hooks.relay import RelayMember
from trainer_hooks.hooks.spec import HOOKS, overrides


class Waits(Timer):
    """Overrides a hook as in Lightning."""

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        super().on_train_batch_end(
            trainer=trainer, pl_module=pl_module, outputs=outputs, batch=batch, batch_idx=batch_idx
        )


def test_another_wrong_keyword_is_an_error(bare, Tiny, batches) -> None:
    """Only that one is known by two names."""

    class Wrong(EarlyStopping):
        def on_train_start(self, trainer, pl_module):
            super().on_train_start(trainer, mine=pl_module)

    with pytest.raises(TypeError, match="mine"):
        bare(Wrong("loss")).fit(Tiny(), batches(1))


def test_every_built_in_hook_takes_it() -> None:
    """Whatever class of the package overrides it."""
    checked = 0
    for name in trainer_hooks.callbacks.__all__:
        kind = getattr(trainer_hooks.callbacks, name)
        if not (inspect.isclass(kind) and issubclass(kind, Callback)):
            continue
        for hook, spec in HOOKS.items():
            method = getattr(kind, hook)
            if spec.takes_module and overrides(object.__new__(kind), hook):
                assert "declared_hook" in vars(method), (name, hook)
                assert "module" in inspect.signature(method).parameters
                checked += 1
    assert checked > 200


def test_super_takes_it(bare, Tiny, batches) -> None:
    """A subclass calls by keywords, and the built-in does its work."""
    trainer = bare(Waits("00:00:00:00"), max_epochs=9)
    trainer.fit(Tiny(), batches(2))
    assert trainer.global_step < 18


def test_a_run_calls_what_is_written() -> None:
    """No frame is added to a hook that is fired."""
    scheduler = GradientAccumulationScheduler({1: 2})
    listener = RelayMember(scheduler, "it").listener("on_train_epoch_start")
    assert listener.__func__ is vars(type(scheduler))["on_train_epoch_start"].__wrapped__
    assert listener.__self__ is scheduler


def test_hooks_of_users_are_left_alone() -> None:
    """Their classes are as they wrote them."""

    class Mine(Callback):
        def on_fit_start(self, trainer, pl_module):
            pass

    assert not hasattr(Mine.on_fit_start, "declared_hook")
    assert "tests" in sys.modules[Mine.__module__].__name__ or Mine.__module__
