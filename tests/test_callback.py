"""Callback: defaults of one implementer of the hooks."""

from __future__ import annotations

from inspect import signature

import pytest

from trainer_hooks.callback import Callback
from trainer_hooks.hooks.band import Band
from trainer_hooks.hooks.catalogue import Hooks
from trainer_hooks.hooks.spec import HOOKS, overrides


class Counter(Callback):
    def __init__(self, what: str = "epochs") -> None:
        self.what = what

    @property
    def state_key(self) -> str:
        return self._generate_state_key(what=self.what)


def test_overrides_no_hook() -> None:
    """A bare callback has every hook of the catalogue, empty and with the same arguments."""
    for hook in HOOKS:
        assert not overrides(Callback(), hook)
        assert signature(getattr(Callback, hook)) == signature(getattr(Hooks, hook))


def test_observes_by_default() -> None:
    """A callback that says nothing about its turn is an observer."""
    assert Callback().band is Band.OBSERVE


def test_state_key_is_the_qualified_name() -> None:
    """The default key is the class's qualified name, an inner class's with its outer's."""

    class Inner(Callback):
        pass

    assert Callback().state_key == "Callback"
    assert Inner().state_key == "test_state_key_is_the_qualified_name.<locals>.Inner"


def test_generated_state_key_tells_instances_apart() -> None:
    """`_generate_state_key` writes the class and the arguments, in the order given."""
    assert Counter("epochs").state_key == "Counter{'what': 'epochs'}"
    assert Counter("batches").state_key == "Counter{'what': 'batches'}"
    assert Callback()._generate_state_key(b=1, a="x") == "Callback{'b': 1, 'a': 'x'}"


def test_state_is_empty_by_default() -> None:
    """A callback without state returns an empty dict and takes anything back."""
    callback = Callback()
    assert callback.state_dict() == {}
    assert callback.load_state_dict({"left over": 1}) is None
    assert vars(callback) == {}


class OnlySaves(Callback):
    def state_dict(self):
        return {"a": 1}


class OnlyLoads(Callback):
    def load_state_dict(self, state_dict):
        pass


@pytest.mark.parametrize("kind", [OnlySaves, OnlyLoads, type("Derived", (OnlySaves,), {})])
def test_a_callback_with_either_state_method_is_stateful(kind: type[Callback]) -> None:
    """Overriding either method, itself or in a base, makes a callback stateful."""
    assert kind().is_stateful


@pytest.mark.parametrize("method", ["state_dict", "load_state_dict"])
def test_a_state_method_on_the_instance_is_a_state(method: str) -> None:
    """A state method set on the instance counts, for that instance only."""
    callback = Callback()
    setattr(callback, method, lambda *args: {})
    assert callback.is_stateful
    assert not Callback().is_stateful
    assert not Counter().is_stateful


def test_run_event_calls_the_named_hook() -> None:
    """The base `run_event` hands the arguments to the hook that is named."""
    seen: list[tuple] = []

    class Listening(Callback):
        def setup(self, trainer, module, stage):
            seen.append((trainer, module, stage))

    Listening().run_event("setup", "t", "m", "fit")
    assert seen == [("t", "m", "fit")]
