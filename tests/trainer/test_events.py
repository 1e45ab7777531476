"""Events that a trainer does not fire itself: of one's own, and hooks that packages add."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from trainer_hooks import Callback, Hooks, StopTraining
from trainer_hooks.callbacks import LambdaCallback
from trainer_hooks.errors import CallbackError, TrainerHooksWarning, UsageError


class DriftHooks(Hooks):
    """What the tests' package adds."""

    def on_drift_detected(self, trainer, module, score: float) -> None:
        """Called when a batch is unlike those before."""


@pytest.fixture
def _drift(monkeypatch, installed_distributions) -> None:
    """A package that adds a hook is installed."""
    module = ModuleType("drift")
    module.DriftHooks = DriftHooks
    monkeypatch.setitem(sys.modules, "drift", module)
    monkeypatch.delenv("TRAINER_HOOKS_DISABLE_PLUGINS")
    entry = ("hooks", "drift:DriftHooks", "trainer_hooks.hooks")
    installed_distributions.append(installed_distributions.make("drift", "2.0", [entry]))


class Listens(DriftHooks, Callback):
    """Listens to the added hook, and may be used where the package is not installed."""

    def __init__(self) -> None:
        self.seen: list = []

    def on_drift_detected(self, trainer, module, score):
        self.seen.append((trainer, module, score))

    def verify(self, value):
        self.seen.append(value)


class Derived(DriftHooks, Callback):
    """Derives from the catalogue that it listens to none of."""


class Routes(DriftHooks, Callback):
    def __init__(self) -> None:
        self.seen: list = []

    def run_event(self, event, trainer, module=None, *args):
        self.seen.append((event, *args))
        super().run_event(event, trainer, module, *args)

    def on_drift_detected(self, trainer, module, score):
        self.seen.append(score)

    def verify(self, value):
        self.seen.append(value)


@pytest.mark.usefixtures("_drift")
def test_a_hook_that_a_package_adds(bare, Tiny, batches) -> None:
    """It is fired by name, in order, on callbacks, on the module, and on who takes every event."""

    class Module(Tiny):
        def on_drift_detected(self, score):
            listens.seen.append(f"module {score}")

        def training_step(self, batch, batch_idx):
            self.trainer.call_event("on_drift_detected", score=batch_idx)
            return super().training_step(batch, batch_idx)

    listens, routes, module = Listens(), Routes(), Module()
    trainer = bare(listens, routes, Derived())
    assert trainer.plugins[0].hooks["on_drift_detected"].supplier == "drift 2.0"
    trainer.fit(module, batches(1))
    assert listens.seen == [(trainer, module, 0), "module 0"]
    assert [e for e in routes.seen if e == 0 or e[0] == "on_drift_detected"] == [
        ("on_drift_detected", 0),
        0,
    ]


@pytest.mark.usefixtures("_drift")
def test_nobody_listens(bare) -> None:
    """Firing a hook that nobody overrides does nothing, after a late registration too."""
    trainer = bare(Derived())
    trainer.call_event("on_drift_detected", score=1)
    trainer.add_callback(Callback())
    trainer.call_event("on_drift_detected", score=1)


@pytest.mark.usefixtures("_drift")
@pytest.mark.parametrize("arguments", [{}, {"scores": 1}, {"score": 1, "more": 2}])
def test_arguments_that_are_not_the_hooks(arguments, bare) -> None:
    """They are told before anything is called."""
    with pytest.raises(UsageError, match=r"'on_drift_detected' .*drift 2.0, takes \['score'\]"):
        bare(Listens()).call_event("on_drift_detected", **arguments)


@pytest.mark.usefixtures("_drift")
def test_added_hooks_are_known_to_the_checks(bare) -> None:
    """A listener's typo gets the added hook's name, and a signature is held to its arguments."""

    class Typo(Callback):
        def on_drift_detect(self, trainer, module, score):
            pass

    class Short(Callback):
        def on_drift_detected(self, trainer, module):
            pass

    with pytest.warns(TrainerHooksWarning, match=r"Did you mean 'on_drift_detected'\?"):
        bare(Typo())
    with pytest.raises(CallbackError, match=r"on_drift_detected\(self, trainer, module, score\)"):
        bare(Short())
    seen = []
    trainer = bare(LambdaCallback(on_drift_detected=lambda *args: seen.append(args[2])))
    trainer.call_event("on_drift_detected", score=4)
    assert seen == [4]


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        ("on_train_start", "is a hook, which the trainer fires itself"),
        ("setup", "is a hook, which the trainer fires itself"),
        ("on_configure_sharded_model", "is a hook, which the trainer fires itself"),
        ("state_dict", "is no event but a part of every callback"),
        ("band", "is no event but a part of every callback"),
        ("__init__", "is no event but a part of every callback"),
        ("on_train_strat", r"is no hook. Did you mean 'on_train_start'\?"),
    ],
)
def test_names_that_are_no_events(event, reason, bare) -> None:
    """An event cannot shadow a hook or a part of a callback, and a misspelt hook is told."""
    with pytest.raises(UsageError, match=reason):
        bare(Listens()).call_event(event, value=1)


def test_an_event_of_ones_own(bare) -> None:
    """The method of that name is called by keyword on who has it, run_event in its own form."""
    listens, routes = Listens(), Routes()
    trainer = bare(listens, routes, Callback())
    routes.seen.clear()
    trainer.call_event("verify", value=3)
    assert listens.seen == [3]
    assert routes.seen == [("verify", 3), 3]


def test_another_systems_name_of_a_hook_is_warned_of(bare) -> None:
    """A name of Composer's that nobody has a method for does nothing, and that is told."""
    trainer = bare(Callback())
    with pytest.warns(UserWarning, match="Composer's name of the hook 'on_train_epoch_start'"):
        trainer.call_event("epoch_start")
    trainer.call_event("nobodys_business")  # which may well have no listener today


def test_another_systems_name_may_be_ones_own(bare) -> None:
    """Where a callback has such a method it is an event of one's own."""

    class Own(Callback):
        seen = 0

        def epoch_start(self, **given):
            self.seen += 1

    own = Own()
    bare(own).call_event("epoch_start")
    assert own.seen == 1


def test_composers_methods_and_signatures_are_told_when_they_are_registered(bare) -> None:
    """A method of Composer's is warned of, and an error if hooks are strict; `run_event` is one."""

    class Monitor(Callback):
        def epoch_start(self, state, logger):
            pass

    class Events(Callback):
        def run_event(self, event, state, logger):
            pass

    with pytest.warns(UserWarning, match="'epoch_start' is Composer's, so nothing calls it"):
        bare(Monitor())
    with pytest.raises(ValueError, match="'epoch_start' is Composer's"):
        bare(Monitor(), strict_hooks=True)
    with pytest.raises(ValueError, match=r"Define run_event\(self, event, \*args\)"):
        bare(Events())


def test_stopping_in_an_event_of_ones_own(bare, Tiny, batches) -> None:
    """StopTraining in a listener ends the run in order, once the others had their turn."""

    class Stops(Callback):
        def verify(self, value):
            raise StopTraining("enough")

    class Fires(Callback):
        def on_train_batch_end(self, trainer, *args):
            trainer.call_event("verify", value=trainer.progress.batches_completed)

    listens = Listens()
    trainer = bare(Stops(), listens, Fires(), max_epochs=3)
    trainer.fit(Tiny(), batches(4))
    assert listens.seen == [1]
    assert (trainer.progress.batches_completed, trainer.interrupted) == (1, False)
