"""The gate for callbacks of other frameworks, on a made-up framework."""

from __future__ import annotations

import copy
import gc
import sys
import weakref
from types import ModuleType

import importlib_metadata
import pytest
from quiet_trainers import QUIET_OPTIONS

from trainer_hooks import Callback, Trainer
from trainer_hooks.adapters import HostedCallback
from trainer_hooks.connector.adapter_lookup import ADAPTER_GROUP, find_adapter_entry_point
from trainer_hooks.connector.connector import CallbackConnector
from trainer_hooks.connector.registry import adapt_if_foreign
from trainer_hooks.errors import CallbackError, StateKeyError, TrainerHooksWarning


class Plugin:
    """The base of callbacks of a made-up framework."""

    def begin(self, engine):
        pass

    def end(self, engine):
        pass


Plugin.__module__ = "otherlib.plugins"


class Counting(Plugin):
    """One of somebody's who uses it."""

    def __init__(self):
        self.count = 0

    def begin(self, engine):
        self.count += 1

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]


class Hosted(HostedCallback):
    """The adapter."""

    framework = "otherlib"
    bases = frozenset({"otherlib.plugins.Plugin"})

    def translated(self, hook):
        twins = {"on_fit_start": "begin", "on_fit_end": "end"}
        name = twins.get(hook)
        if name is None or not self.guest_has(name):
            return None
        method = getattr(self.guest, name)
        return lambda trainer, module: method(trainer)


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch):
    """Register functions as the only adapters that are installed; return how often it was asked."""
    asked: list[str] = []
    module = ModuleType("made_up_adapters")
    monkeypatch.setitem(sys.modules, module.__name__, module)

    def do(**functions):
        class Installed:
            def read_text(self, name):
                return f"[{ADAPTER_GROUP}]"

            @property
            def entry_points(self):
                return importlib_metadata.EntryPoints(
                    importlib_metadata.EntryPoint(
                        "otherlib.plugins.Plugin", f"{module.__name__}:{name}", ADAPTER_GROUP
                    )
                    for name in functions
                )

        for name, function in functions.items():
            setattr(module, name, function)

        def distributions():
            asked.append(ADAPTER_GROUP)
            return [Installed()]

        monkeypatch.setattr(importlib_metadata, "distributions", distributions)
        return asked

    return do


# --- bad input ---


def test_no_adapter_is_told_with_whose_callback_it_is(register) -> None:
    """Without an adapter the error names the class, its package, and the ways out."""
    register()
    with pytest.raises(CallbackError, match=r"callbacks\[0\] is .* of type Counting of the pack"):
        Trainer(callbacks=[Counting()], **QUIET_OPTIONS)
    with pytest.raises(CallbackError, match=r"register an adapter in .*'trainer_hooks.adapters'"):
        Trainer(callbacks=[Counting()], **QUIET_OPTIONS)


def test_a_foreign_class_is_told_to_be_called(register) -> None:
    """A class of another framework is refused, with how to make an instance."""
    register(adapt=Hosted.hosting)
    with pytest.raises(CallbackError, match=r"a class: write Counting\(\.\.\.\)"):
        Trainer(callbacks=[Counting], **QUIET_OPTIONS)


def test_an_adapter_that_cannot_be_loaded_is_named(register, monkeypatch) -> None:
    """What the loading of an adapter raises is told with the entry point and whom it was for."""
    register(adapt=None)
    monkeypatch.delattr(sys.modules["made_up_adapters"], "adapt")
    with pytest.raises(CallbackError, match=r"'made_up_adapters:adapt'.*Counting, cannot be load"):
        Trainer(callbacks=[Counting()], **QUIET_OPTIONS)


def test_an_adapter_that_returns_no_callback_is_named(register) -> None:
    """So is one that returns something else."""
    register(adapt=lambda guest: guest)
    with pytest.raises(CallbackError, match=r"returned .*it must return a trainer_hooks.Callback"):
        Trainer(callbacks=[Counting()], **QUIET_OPTIONS)


def test_two_guests_of_one_key_are_told_apart(register) -> None:
    """Two stateful callbacks of one foreign class are the error that two of ours are."""
    register(adapt=Hosted.hosting)
    with pytest.raises(StateKeyError, match="otherlib:Counting"):
        CallbackConnector([Counting(), Counting()], discover=False)


def test_one_guest_listed_twice_is_registered_once(register) -> None:
    """A foreign callback that is listed twice is warned of, and takes part once."""
    register(adapt=Hosted.hosting)
    guest = Counting()
    with pytest.warns(TrainerHooksWarning, match="is listed twice"):
        connector = CallbackConnector([guest, guest], discover=False)
    assert len(connector.callbacks) == 1


# --- what it does ---


def test_a_guest_takes_part(register) -> None:
    """It is registered under its own names, and only what it overrides is wired."""
    register(adapt=Hosted.hosting)
    guest = Counting()
    connector = CallbackConnector([guest], discover=False)
    (entry,) = connector.entries
    assert entry.label == (
        "callback Counting (state_key 'otherlib:Counting', from Trainer(callbacks=...))"
    )
    assert type(entry.callback).__module__ == Counting.__module__
    assert connector.relay.listened == {"on_fit_start"}
    connector.relay.on_fit_start("trainer", "module")
    assert connector.state_dict() == {"otherlib:Counting": {"count": 1}}
    connector.load_state_dict({"otherlib:Counting": {"count": 7}})
    assert guest.count == 7


@pytest.mark.slow
def test_adoption_is_idempotent(register) -> None:
    """A foreign object has one adapter as long as somebody keeps that, and one class for ever."""
    register(adapt=Hosted.hosting)
    guest = Counting()
    adapter = adapt_if_foreign(guest)
    assert adapt_if_foreign(guest) is adapter
    assert adapt_if_foreign(adapter) is adapter
    assert type(adapt_if_foreign(Counting())) is type(adapter)
    gone = weakref.ref(adapter)
    del adapter
    gc.collect()
    assert gone() is None


def test_a_copy_is_of_the_guest(register) -> None:
    """A deep copy of an adapter stands for a copy of the guest."""
    register(adapt=Hosted.hosting)
    adapter = adapt_if_foreign(Counting())
    other = copy.deepcopy(adapter)
    assert other.guest is not adapter.guest
    assert type(other) is type(adapter)


def test_it_is_added_and_removed_by_itself(register) -> None:
    """`add_callback` and `remove_callback` take the foreign object."""
    register(adapt=Hosted.hosting)
    trainer, guest = Trainer(**QUIET_OPTIONS, enable_run_manifest=False), Counting()
    trainer.add_callback(guest)
    assert [callback.guest for callback in trainer.callbacks] == [guest]
    trainer.callbacks.remove(adapt_if_foreign(guest))
    trainer.callbacks.append(guest)
    trainer.remove_callback(guest)
    assert not trainer.callbacks


def test_nothing_is_looked_up_for_callbacks_of_ours(register) -> None:
    """The entry points are not read where every callback is one of trainer_hooks."""
    asked = register(adapt=Hosted.hosting)
    CallbackConnector([Callback()], discover=False)
    assert not asked
    assert find_adapter_entry_point(Counting) is not None
    assert asked == [ADAPTER_GROUP]


def test_a_plugin_may_supply_one(register, monkeypatch) -> None:
    """What a plugin's factory returns goes through the same gate."""
    from trainer_hooks.hooks.plugin import Plugin as Record

    register(adapt=Hosted.hosting)
    monkeypatch.delenv("TRAINER_HOOKS_DISABLE_PLUGINS", raising=False)
    guest = Counting()

    def discover(plugin_filter, is_callback, errors):
        assert is_callback(guest)
        assert not is_callback(object())
        return (Record("dist", "1", "e", "g", "m:f", status="loaded", callbacks=(guest,)),)

    monkeypatch.setattr("trainer_hooks.connector.plugin_validation.load_plugins", discover)
    connector = CallbackConnector(discover=True, plugin_errors="raise")
    assert [callback.guest for callback in connector.callbacks] == [guest]
