"""CallbackConnector: which callbacks, in what order, under which state_key."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from trainer_hooks.callback import Callback
from trainer_hooks.connector.callback_state import LoadReport
from trainer_hooks.connector.connector import CallbackConnector
from trainer_hooks.connector.registry import DefaultCallback
from trainer_hooks.errors import (
    CallbackError,
    ModuleError,
    PluginError,
    StateKeyError,
    TrainerHooksAdvice,
    TrainerHooksWarning,
)
from trainer_hooks.hooks.band import Band

ROOT = Path(__file__).parents[2]


class Quiet(Callback):
    """Has no state."""


class Counter(Callback):
    """Has a state, and a key made of its argument."""

    def __init__(self, what: str = "batches", count: int = 0) -> None:
        self.what = what
        self.count = count

    @property
    def state_key(self) -> str:
        return self._generate_state_key(what=self.what)

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state_dict):
        self.count = state_dict["count"]


class Keyed(Callback):
    """Has a state under any key."""

    def __init__(self, key: str = "key") -> None:
        self.key = key

    @property
    def state_key(self) -> str:
        return self.key

    def state_dict(self):
        return {}

    def load_state_dict(self, state_dict):
        pass


class Bar(Callback):
    band = Band.SINK


class OtherBar(Bar):
    pass


class Saver(Callback):
    band = Band.SAVE


class Module:
    """Stands for a module without hooks of its own."""


def connect(callbacks=None, **options) -> CallbackConnector:
    return CallbackConnector(callbacks, **{"discover": False, **options})


def kinds(connector: CallbackConnector) -> list[str]:
    return [type(callback).__name__ for callback in connector.callbacks]


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch, installed_distributions):
    """Return a function that installs made-up plugins: distribution name to what they make."""

    def install(**makes) -> None:
        module = ModuleType("made_up_plugins")
        for distribution, make in makes.items():
            setattr(module, distribution, make)
            entry = ("cb", f"made_up_plugins:{distribution}", "trainer_hooks.callbacks_factory")
            made = installed_distributions.make(distribution, entries=[entry])
            installed_distributions.append(made)
        monkeypatch.setitem(sys.modules, "made_up_plugins", module)
        for switch in ("DISABLE", "BLOCK", "ALLOW"):
            monkeypatch.delenv(f"TRAINER_HOOKS_{switch}_PLUGINS", raising=False)

    return install


# --- What is taken -----------------------------------------------------------------------------


@pytest.mark.parametrize("form", [list, tuple, iter, lambda items: (item for item in items)])
def test_any_iterable_of_callbacks_is_taken(form) -> None:
    """A list, tuple, iterator or generator gives the same callbacks in the same order."""
    callbacks = [Quiet(), Counter(), Quiet()]
    assert connect(form(callbacks)).callbacks == tuple(callbacks)


def test_one_callback_is_taken_as_it_is() -> None:
    """A single callback needs no list around it."""
    callback = Quiet()
    assert connect(callback).callbacks == (callback,)


@pytest.mark.parametrize("nothing", [None, [], ()])
def test_nothing_is_no_callbacks(nothing) -> None:
    """None and an empty list both mean no callbacks of the user's."""
    assert connect(nothing).callbacks == ()


def test_the_users_list_is_never_changed() -> None:
    """Defaults, additions and removals leave the list that the user passed as it was."""
    saver, quiet = Saver(), Quiet()
    mine = [saver, quiet]
    connector = connect(mine, defaults=[DefaultCallback(Bar(), Bar)])
    connector.add(Counter())
    connector.remove(quiet)
    connector.set_module(Module(), [Counter("epochs")])
    assert mine == [saver, quiet]


def test_changing_the_list_afterwards_changes_nothing() -> None:
    """The list is read once: what the user appends to it later takes no part."""
    mine = [Quiet()]
    connector = connect(mine)
    mine.append(Saver())
    assert kinds(connector) == ["Quiet"]


def test_a_class_is_refused_with_what_to_write() -> None:
    """A class instead of an instance is named by position, with the parentheses to add."""
    with pytest.raises(CallbackError, match=r"callbacks\[1\] is the class Quiet.*Quiet\(\.\.\.\)"):
        connect([Saver(), Quiet])
    with pytest.raises(CallbackError, match="is the class Quiet"):
        connect(Quiet)


@pytest.mark.parametrize("thing", [object(), 3, "checkpoint", lambda: None, int, {"a": Quiet()}])
def test_what_is_no_callback_is_refused(thing) -> None:
    """Anything that is no Callback is refused with its type and with what would do."""
    for given in (thing, [Quiet(), thing]):
        with pytest.raises(CallbackError, match=r"must be an instance of trainer_hooks\.Callback"):
            connect(given)


def test_one_instance_listed_twice_is_registered_once() -> None:
    """The same object twice is warned of and takes part once, at its first place."""
    twice, between = Quiet(), Quiet()
    with pytest.warns(TrainerHooksWarning, match=r"callbacks\[2\].*is listed twice") as caught:
        connector = connect([twice, between, twice])
    assert connector.callbacks == (twice, between)
    assert caught[0].filename == __file__


@pytest.mark.parametrize("band", ["save", 60, None])
def test_a_band_that_is_none_is_refused(band) -> None:
    """A band must be a `Band`: anything else is refused with the names to choose from."""

    class Lost(Callback):
        pass

    Lost.band = band
    with pytest.raises(CallbackError, match=r"band .* of callbacks\[0\], a .*Band\.TRANSFORM"):
        connect(Lost())


def test_a_state_key_that_is_no_string_is_refused() -> None:
    """A key must be a string: the checkpoint is a dict of those."""
    with pytest.raises(CallbackError, match=r"state_key 7 of callbacks\[0\], a Keyed"):
        connect(Keyed(7))  # type: ignore[arg-type]


def test_an_on_error_that_is_neither_is_refused() -> None:
    """`on_error` is "raise" or "disable"; anything else is refused before it is needed."""
    callback = Quiet()
    callback.on_error = "ignore"
    with pytest.raises(CallbackError, match=r"on_error 'ignore' of callbacks\[0\], a Quiet"):
        connect(callback)


def test_a_misspelt_hook_is_warned_of_at_registration() -> None:
    """The connector names the callback, the method, and the hook that was meant."""

    class Typo(Callback):
        def on_train_bach_end(self, *args):
            pass

    expected = r"callback .*Typo .*'on_train_bach_end' is no hook.* mean 'on_train_batch_end'\?"
    with pytest.warns(TrainerHooksWarning, match=expected) as caught:
        connect(Typo())
    assert caught[0].filename == __file__
    with pytest.warns(TrainerHooksWarning, match=expected):
        connect().add(Typo())
    with pytest.warns(TrainerHooksWarning, match=expected):
        connect().set_module(Module(), Typo())


def test_a_misspelt_hook_is_an_error_on_request(plugins) -> None:
    """With strict_hooks nothing of the callback is registered, whoever brings it."""

    class Typo(Callback):
        def on_train_bach_end(self, *args):
            pass

    with pytest.raises(CallbackError, match=r"Typo .*'on_train_bach_end' is no hook"):
        connect(Typo(), strict_hooks=True)
    connector = connect(strict_hooks=True)
    with pytest.raises(CallbackError, match="is no hook"):
        connector.add(Typo())
    with pytest.raises(CallbackError, match="is no hook"):
        connector.set_module(Module(), Typo())
    assert connector.callbacks == ()
    plugins(acme=Typo)
    with pytest.raises(PluginError, match=r"plugin acme 1.0 .*'on_train_bach_end' is no hook"):
        CallbackConnector(strict_hooks=True)
    plugins(acme=Typo)
    with pytest.warns(TrainerHooksWarning, match=r"Typo .*from plugin acme 1.0.* is no hook"):
        CallbackConnector()


@pytest.mark.parametrize("way", ["short", "number", "async", "property"])
def test_a_hook_that_cannot_be_called_is_refused(way, plugins) -> None:
    """It would fail in the middle of a run; a plugin's is reported and left out instead."""

    class Broken(Callback):
        pass

    hooks = {
        "short": lambda self: None,
        "number": 5,
        "async": _awaited,
        "property": property(lambda self: 1 / 0),
    }
    Broken.on_train_epoch_end = hooks[way]  # type: ignore[assignment, method-assign]
    with pytest.raises(CallbackError, match=r"callback .*Broken.* the hook 'on_train_epoch_end'"):
        connect([Quiet(), Broken()])
    connector = connect(Quiet())
    with pytest.raises(CallbackError, match="the hook 'on_train_epoch_end'"):
        connector.add(Broken())
    assert kinds(connector) == ["Quiet"]
    plugins(acme=Broken)
    with pytest.warns(TrainerHooksWarning, match=r"plugin acme 1.0 .* the hook 'on_train_epoch"):
        connector = CallbackConnector(Quiet())
    assert kinds(connector) == ["Quiet"]
    assert [plugin.status for plugin in connector.plugins] == ["failed"]


async def _awaited(self, trainer, module) -> None:
    pass


class Attached:
    """Stands for a module with hooks."""

    def on_fit_start(self):
        pass

    def on_before_batch_transfer(self, batch, dataloader_idx):
        pass


def test_a_modules_hooks_are_checked() -> None:
    """A module's misspelt hook is warned of, one that cannot be called is an error."""
    connector = connect()
    connector.check_run(Attached(), {"on_before_batch_transfer"})
    with pytest.warns(TrainerHooksWarning, match=r"module Attached: .*'on_before_batch_transfer'"):
        connector.check_run(Attached())
    with pytest.raises(ModuleError, match=r"module Attached: .*'on_before_batch_transfer'"):
        connect(strict_hooks=True).check_run(Attached())
    broken = Attached()
    broken.on_train_batch_end = lambda: None  # type: ignore[attr-defined]
    expected = r"cannot take .*on_train_batch_end\(self, outputs, batch, batch_idx\)"
    with pytest.raises(ModuleError, match=expected):
        connector.check_run(broken, {"on_before_batch_transfer"})


# --- State keys --------------------------------------------------------------------------------


def test_clashing_state_keys_are_refused() -> None:
    """Two stateful callbacks with one key: the error names both and says what to write."""
    with pytest.raises(StateKeyError) as caught:
        connect([Counter("epochs"), Quiet(), Counter("epochs", 3)])
    message = str(caught.value)
    assert "\"Counter{'what': 'epochs'}\"" in message
    assert message.count(f"{Counter.__module__}.Counter (from Trainer(callbacks=...))") == 2
    assert "self._generate_state_key(" in message


def test_classes_of_one_name_are_told_apart_in_the_error() -> None:
    """Two classes that share a qualified name clash, and the error names their modules."""
    here = type("Monitor", (Callback,), {"state_dict": lambda self: {}, "__module__": "here"})
    there = type("Monitor", (Callback,), {"state_dict": lambda self: {}, "__module__": "there"})
    with pytest.raises(StateKeyError, match=r"here\.Monitor .* and there\.Monitor"):
        connect([here(), there()])


def test_instances_with_keys_of_their_own_live_side_by_side() -> None:
    """Two counters that count different things have two keys and two states."""
    connector = connect([Counter("batches", 5), Counter("epochs", 2)])
    assert connector.state_dict() == {
        "Counter{'what': 'batches'}": {"count": 5},
        "Counter{'what': 'epochs'}": {"count": 2},
    }


def test_stateless_duplicates_are_fine() -> None:
    """Two callbacks of one class without state have nothing to overwrite, and both take part."""
    connector = connect([Quiet(), Quiet()])
    assert kinds(connector) == ["Quiet", "Quiet"]
    assert connector.state_dict() == {}


def test_a_stateless_callback_may_share_a_stateful_ones_key() -> None:
    """Only callbacks that write a state can clash."""

    class Shares(Callback):
        state_key = "key"  # type: ignore[assignment]

    assert kinds(connect([Keyed("key"), Shares()])) == ["Keyed", "Shares"]


def test_a_default_that_clashes_with_the_users_is_refused() -> None:
    """Defaults are held to the same rule."""
    with pytest.raises(StateKeyError, match=r"\(from default\)"):
        connect(Keyed("key"), defaults=[DefaultCallback(Keyed("key"), Bar)])


# --- Order and defaults ------------------------------------------------------------------------


def test_callbacks_are_ordered_by_band_then_as_listed() -> None:
    """Savers come last and sinks before them; inside a band the user's order holds."""
    connector = connect([Saver(), Bar(), Counter(), Quiet()])
    assert kinds(connector) == ["Counter", "Quiet", "Bar", "Saver"]


def test_a_default_takes_part_unless_one_of_its_kind_does() -> None:
    """A default steps back for the user's own, subclasses included."""
    default = DefaultCallback(Bar(), Bar)
    assert kinds(connect(Quiet(), defaults=[default])) == ["Quiet", "Bar"]
    assert kinds(connect(OtherBar(), defaults=[default])) == ["OtherBar"]


def test_a_default_comes_last_in_its_band(plugins) -> None:
    """The user's, a plugin's and a module's callbacks of its band are called before it."""

    class OfTheModule(Keyed):
        pass

    class Later(Quiet):
        pass

    plugins(theirs=Counter)
    connector = connect(discover=True, defaults=[DefaultCallback(Quiet(), Bar)])
    connector.set_module(Module(), OfTheModule())
    connector.add(Later())
    assert kinds(connector) == ["Counter", "OfTheModule", "Later", "Quiet"]


def test_a_default_steps_back_for_a_plugins(plugins) -> None:
    """A plugin's progress bar makes the default bar unneeded."""
    plugins(their_bar=OtherBar)
    connector = connect(defaults=[DefaultCallback(Bar(), Bar)], discover=True)
    assert kinds(connector) == ["OtherBar"]


def test_a_default_steps_back_for_a_modules_and_returns() -> None:
    """A bar that a module brings replaces the default for as long as that module is attached."""
    connector = connect(defaults=[DefaultCallback(Bar(), Bar)])
    connector.set_module(Module(), OtherBar())
    assert kinds(connector) == ["OtherBar"]
    connector.set_module(Module())
    assert kinds(connector) == ["Bar"]


# --- Plugins -----------------------------------------------------------------------------------


def test_plugins_come_before_the_users_in_a_band(plugins) -> None:
    """A plugin's callback takes part, ahead of the user's, with its supplier on record."""
    plugins(theirs=Counter)
    connector = connect(Quiet(), discover=True)
    assert kinds(connector) == ["Counter", "Quiet"]
    assert [entry.supplier for entry in connector.entries] == [
        "plugin theirs 1.0",
        "Trainer(callbacks=...)",
    ]


def test_the_users_replaces_a_plugins_of_the_same_type_and_key(plugins) -> None:
    """The user's own instance takes the place of the plugin's, without a word."""
    plugins(theirs=lambda: [Counter("batches", 1), Counter("epochs", 1)])
    connector = connect(Counter("batches", 7), discover=True)
    assert [(c.what, c.count) for c in connector.callbacks] == [("epochs", 1), ("batches", 7)]


def test_the_users_replaces_a_stateless_plugins_too(plugins) -> None:
    """Without state as well, the user's instance is not run beside the plugin's."""
    plugins(theirs=Quiet)
    mine = Quiet()
    assert connect(mine, discover=True).callbacks == (mine,)


def test_a_subclass_does_not_replace_its_parent(plugins) -> None:
    """Only the very type counts: a user's subclass is another callback than the plugin's."""
    plugins(theirs=Bar)
    assert kinds(connect(OtherBar(), discover=True)) == ["Bar", "OtherBar"]


def test_a_plugin_that_clashes_with_another_type_is_reported(plugins) -> None:
    """A plugin with a user's key under another type is left out with a warning, not an error."""

    class Theirs(Keyed):
        pass

    plugins(theirs=Theirs, fine=Quiet)
    with pytest.warns(TrainerHooksWarning) as caught:
        connector = connect(Keyed("key"), discover=True)
    assert kinds(connector) == ["Quiet", "Keyed"]
    [warning] = caught
    message = str(warning.message)
    assert "plugin theirs 1.0" in message
    assert "clashes with another callback: state_key 'key'" in message
    assert "TRAINER_HOOKS_BLOCK_PLUGINS=theirs" in message
    assert ".." not in message.replace("(...)", "").replace("=...", "")


def test_a_clashing_plugin_raises_on_request(plugins) -> None:
    """With `plugin_errors="raise"` the clash is a PluginError caused by the StateKeyError."""
    plugins(theirs=type("Theirs", (Keyed,), {}))
    with pytest.raises(PluginError, match="plugin theirs") as caught:
        connect(Keyed("key"), discover=True, plugin_errors="raise")
    assert isinstance(caught.value.__cause__, StateKeyError)


def test_of_two_plugins_that_clash_the_first_stays(plugins) -> None:
    """Plugins are sorted, so which of two clashing ones takes part is the same everywhere."""
    plugins(zeta=lambda: Keyed("key"), alpha=lambda: Keyed("key"))
    with pytest.warns(TrainerHooksWarning, match="plugin zeta"):
        connector = connect(discover=True)
    assert [entry.supplier for entry in connector.entries] == ["plugin alpha 1.0"]


def test_a_plugin_that_clashes_with_a_default_is_reported(plugins) -> None:
    """A plugin cannot end `Trainer()` by taking the key of a default."""
    plugins(theirs=lambda: Keyed("key"))
    with pytest.warns(TrainerHooksWarning, match="plugin theirs"):
        connector = connect(discover=True, defaults=[DefaultCallback(Keyed("key"), Bar)])
    assert [entry.origin for entry in connector.entries] == ["default"]


def test_a_plugins_broken_property_is_the_plugins_fault(plugins) -> None:
    """A state_key that raises is reported with the plugin's name and stops nothing."""

    class NoKey(Callback):
        @property
        def state_key(self):
            raise LookupError("no run id")

    plugins(theirs=NoKey)
    with pytest.warns(TrainerHooksWarning, match=r"plugin theirs.*LookupError: no run id"):
        connector = connect(Quiet(), discover=True)
    assert kinds(connector) == ["Quiet"]


def test_an_instance_that_two_plugins_share_takes_part_once(plugins) -> None:
    """Two factories that return one object register it once."""
    shared = Counter()
    plugins(alpha=lambda: shared, beta=lambda: [shared, shared])
    assert connect(discover=True).callbacks == (shared,)


def test_plugin_records_are_plain_data(plugins) -> None:
    """For each plugin's callback that takes part: where it came from, its class, its key."""
    plugins(theirs=Counter, replaced=Quiet)
    connector = connect(Quiet(), discover=True)
    assert connector.plugin_records() == [
        {
            "distribution": "theirs",
            "version": "1.0",
            "entry_point": "cb",
            "class": "Counter",
            "state_key": "Counter{'what': 'batches'}",
        }
    ]


def test_the_notes_of_an_error_name_the_distribution(plugins) -> None:
    """An error in a plugin's hook says which plugin, which version, which key."""

    class Theirs(Callback):
        def on_fit_start(self, trainer, module):
            raise ValueError("bad day")

    plugins(theirs=Theirs)
    connector = connect(discover=True)
    with pytest.raises(ValueError, match="bad day") as caught:
        connector.relay.on_fit_start(None, None)
    [note] = caught.value.__notes__
    assert "hook 'on_fit_start'" in note
    assert f"state_key {Theirs().state_key!r}" in note
    assert "from plugin theirs 1.0" in note


# --- The module's callbacks --------------------------------------------------------------------


def test_a_modules_callback_replaces_by_type(plugins) -> None:
    """What a module brings replaces all of its type, plugins' too, and nothing else."""
    plugins(acme=lambda: [Counter("of a plugin"), Quiet()])
    mine = [Counter("batches", 1), Counter("epochs", 1), Quiet()]
    brought = [Counter("epochs", 9), Counter("steps", 9)]
    connector = CallbackConnector(mine)
    connector.set_module(Module(), brought)
    assert connector.callbacks == (mine[2], *brought)


def test_what_a_module_replaced_comes_back() -> None:
    """The next module finds the callbacks that the user registered, in their order."""
    mine = [Counter("batches", 1), Quiet()]
    connector = connect(mine)
    connector.set_module(Module(), Counter("batches", 9))
    connector.set_module(Module())
    assert connector.callbacks == tuple(mine)


def test_attaching_the_same_module_twice_is_once() -> None:
    """A module that brings the same callbacks to every run does not pile them up."""
    connector = connect(Quiet())
    brought = Counter()
    for _ in range(3):
        connector.set_module(Module(), [brought])
    assert connector.callbacks[1:] == (brought,)


DETERMINISM = """
import sys
from trainer_hooks.callback import Callback
from trainer_hooks.connector.connector import CallbackConnector

class Parent(Callback):
    def __init__(self, name): self.name = name
class Child(Parent): pass
class Grandchild(Child): pass
class Other(Parent): pass

connector = CallbackConnector(
    [Parent("t"), Child("t"), Other("t"), Grandchild("t")], discover=False
)
class Module: pass
connector.set_module(Module(), [Child("m"), Other("m")])
print([(type(c).__name__, c.name) for c in connector.callbacks])
connector.set_module(Module())
print([(type(c).__name__, c.name) for c in connector.callbacks])
"""


@pytest.mark.slow
def test_replacement_does_not_depend_on_the_hash_seed() -> None:
    """Parents are replaced with their subclass: all processes replace the same, in one order."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", DETERMINISM],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in ("0", "1", "2", "42")
    ]
    outputs = {process.communicate(timeout=60)[0] for process in processes}
    [output] = outputs
    assert output.splitlines() == [
        "[('Grandchild', 't'), ('Child', 'm'), ('Other', 'm')]",
        "[('Parent', 't'), ('Child', 't'), ('Other', 't'), ('Grandchild', 't')]",
    ]


def test_what_became_of_a_plugin_that_was_replaced(plugins) -> None:
    """A plugin whose every callback the user replaced says so; others are loaded."""
    plugins(acme=Counter, beta=lambda: [Counter(), Quiet()])
    connector = CallbackConnector(Counter())
    assert [(p.distribution, p.status, p.reason) for p in connector.plugins] == [
        ("acme", "replaced", "by the user's own Counter"),
        ("beta", "loaded", ""),
    ]
    assert kinds(connector) == ["Quiet", "Counter"]


# --- Nothing is half registered ----------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        lambda connector: connector.add(Counter("batches")),
        lambda connector: connector.add(Quiet),
        lambda connector: connector.add("journal"),
        lambda connector: connector.add(connector.callbacks[0]),
        lambda connector: connector.add([Quiet()]),
        lambda connector: connector.set_module(Module(), Keyed("Counter{'what': 'batches'}")),
        lambda connector: connector.set_module(Module(), [Quiet(), 3]),
        lambda connector: connector.set_module(Module(), [Counter("x"), Counter("x")]),
        lambda connector: connector.remove(Quiet()),
    ],
    ids=["clash", "class", "string", "twice", "list", "brought", "3", "twins", "stranger"],
)
def test_a_rejected_change_leaves_everything_as_it_was(change) -> None:
    """After an error the callbacks, the relay, and what a later set_module gives are the same."""
    seen: list[str] = []
    counter = Counter()
    counter.on_fit_start = lambda trainer, module: seen.append("counter")  # type: ignore[method-assign]

    class Attached(Module):
        def on_fit_start(self):
            seen.append("module")

    connector = connect([counter, Quiet()], defaults=[DefaultCallback(Bar(), Bar)])
    connector.set_module(Attached())
    before, listened = connector.entries, connector.relay.listened
    with pytest.raises(CallbackError):
        change(connector)
    assert connector.entries == before
    assert connector.relay.listened == listened
    connector.relay.on_fit_start(None, None)
    assert seen == ["counter", "module"]
    connector.set_module(Attached())
    assert connector.entries == before


def test_add_takes_its_place_by_band() -> None:
    """A callback that is added later stands where its band says, and stays with the user's."""
    connector = connect([Saver(), Quiet()])
    connector.add(Bar())
    assert kinds(connector) == ["Quiet", "Bar", "Saver"]
    connector.set_module(Module())
    assert kinds(connector) == ["Quiet", "Bar", "Saver"]


def test_add_replaces_a_plugins(plugins) -> None:
    """The user's own replaces a plugin's of its type and key, also when it is added later."""
    plugins(theirs=lambda: Counter("batches", 1))
    connector = connect(discover=True)
    mine = Counter("batches", 7)
    connector.add(mine)
    assert connector.callbacks == (mine,)
    connector.set_module(Module())
    assert connector.callbacks == (mine,)


def test_add_makes_a_default_unneeded() -> None:
    """The default of a kind steps back for one that is added."""
    connector = connect(defaults=[DefaultCallback(Bar(), Bar)])
    connector.add(OtherBar())
    assert kinds(connector) == ["OtherBar"]


def test_adding_keeps_the_modules_hooks_and_callbacks() -> None:
    """An addition during a run leaves the module and what it brought in place."""
    connector = connect()
    connector.set_module(Module(), Counter())
    connector.add(Saver())
    assert kinds(connector) == ["Counter", "Saver"]
    connector.set_module(Module())
    assert kinds(connector) == ["Saver"]


@pytest.mark.parametrize("how", ["at once", "one by one"])
def test_registrations_are_linear(how: str) -> None:
    """Each of many registrations looks at its own callback, and not at those before it."""
    looked_at = 0

    class Watched(Callback):
        def __init__(self, number: int) -> None:
            self.number = number

        @property
        def state_key(self) -> str:
            nonlocal looked_at
            looked_at += 1
            return f"Watched {self.number}"

        def state_dict(self):
            return {}

        def on_fit_start(self, trainer, module):
            fired.append(self.number)

    def looks(count: int) -> int:
        nonlocal looked_at
        looked_at = 0
        callbacks = [Watched(number) for number in range(count)]
        connector = connect(callbacks if how == "at once" else None)
        if how == "one by one":
            for callback in callbacks:
                connector.add(callback)
        fired.clear()
        connector.relay.on_fit_start(None, None)
        assert fired == list(range(count))
        return looked_at

    fired: list[int] = []
    assert looks(200) == 10 * looks(20)


def test_who_is_added_inside_a_hook_is_heard_at_the_next() -> None:
    """A firing sees who took part when it began, also of an add and a remove in a row."""
    seen: list[str] = []

    class Late(Callback):
        def on_fit_start(self, trainer, module):
            seen.append("late")

    class Adds(Callback):
        def on_fit_start(self, trainer, module):
            seen.append("adds")
            if late not in connector.callbacks:
                connector.add(late)
                connector.remove(bystander)

    class Bystander(Callback):
        def on_fit_start(self, trainer, module):
            seen.append("bystander")

    late, bystander = Late(), Bystander()
    connector = connect([Adds(), bystander])
    connector.relay.on_fit_start(None, None)
    assert seen == ["adds", "bystander"]
    seen.clear()
    connector.relay.on_fit_start(None, None)
    assert seen == ["adds", "late"]


def test_remove_takes_out_for_good() -> None:
    """A removed callback hears no more and does not return with the next module."""
    first, second = Quiet(), Quiet()
    connector = connect([first, second])
    connector.remove(first)
    assert connector.callbacks == (second,)
    connector.set_module(Module())
    assert connector.callbacks == (second,)


def test_no_default_steps_in_for_what_was_removed() -> None:
    """Whoever takes out a bar in the middle of a run does not get another one."""
    bar = OtherBar()
    connector = connect(bar, defaults=[DefaultCallback(Bar(), Bar)])
    connector.remove(bar)
    assert kinds(connector) == []
    connector.set_module(Module())
    assert kinds(connector) == []


def test_a_default_can_be_removed() -> None:
    """A default that was taken out stays out."""
    connector = connect(Quiet(), defaults=[DefaultCallback(Bar(), Bar)])
    connector.remove(connector.callbacks[1])
    connector.set_module(Module())
    assert kinds(connector) == ["Quiet"]


def test_removing_what_a_module_brought_ends_with_that_module() -> None:
    """It and the default it stood for stay out of this run; the next module's run has it again."""
    connector = connect(defaults=[DefaultCallback(Bar(), Bar)])
    brought = OtherBar()
    connector.set_module(Module(), brought)
    connector.remove(brought)
    assert kinds(connector) == []
    connector.set_module(Module())
    assert kinds(connector) == ["Bar"]


def test_removing_a_stranger_lists_who_is_registered() -> None:
    """The error says which callbacks could have been meant."""
    with pytest.raises(CallbackError, match=r"cannot be removed\. Registered: callback Saver "):
        connect(Saver()).remove(Quiet())


# --- State -------------------------------------------------------------------------------------


def test_an_empty_state_is_saved_too() -> None:
    """A stateful callback with nothing to say today has its place in the checkpoint."""
    assert connect(Keyed("empty")).state_dict() == {"empty": {}}


def test_a_state_is_saved_as_the_callback_gave_it() -> None:
    """The connector does not copy or change a state."""
    state = {"a": [1, 2]}
    callback = Keyed("mine")
    callback.state_dict = lambda: state  # type: ignore[method-assign]
    assert connect(callback).state_dict()["mine"] is state


def test_states_are_restored_into_the_same_objects() -> None:
    """A restore changes the user's own objects and swaps none."""
    batches, epochs = Counter("batches"), Counter("epochs")
    connector = connect([batches, Quiet(), epochs])
    before = connector.callbacks
    report = connector.load_state_dict(
        {"Counter{'what': 'epochs'}": {"count": 2}, "Counter{'what': 'batches'}": {"count": 5}}
    )
    assert connector.callbacks == before
    assert (batches.count, epochs.count) == (5, 2)
    assert report == LoadReport(restored=(batches.state_key, epochs.state_key))
    assert report.summary == ""


def test_missing_and_unexpected_states_are_reported() -> None:
    """What the checkpoint lacks and what nobody takes come back as data, and as a sentence."""
    counter = Counter("batches", 1)
    report = connect([counter, Keyed("known")]).load_state_dict(
        {"known": {}, "Zebra": {"a": 1}, "Ghost": {"a": 1}}
    )
    assert report.restored == ("known",)
    assert report.missing == (counter.state_key,)
    assert report.unexpected == ("Ghost", "Zebra")
    assert counter.count == 1
    assert report.summary == (
        "no state for \"Counter{'what': 'batches'}\"; state without a callback: 'Ghost', 'Zebra'"
    )


def test_differences_of_plugins_are_part_of_the_summary() -> None:
    """What the report says of plugins is part of its sentence."""
    report = LoadReport(missing=("A",), plugins=("plugin p 1.0 is not installed",))
    assert report.summary == "no state for 'A'; plugin p 1.0 is not installed"


@pytest.mark.parametrize("method", ["state_dict", "load_state_dict"])
def test_an_error_in_a_state_method_names_the_callback(method: str) -> None:
    """An error while saving or restoring keeps its type and gains the callback's name."""

    class Fails(Callback):
        def state_dict(self):
            raise LookupError("lost")

        def load_state_dict(self, state_dict):
            raise LookupError("lost")

    connector = connect(Fails())
    key = connector.callbacks[0].state_key
    with pytest.raises(LookupError, match="lost") as caught:
        connector.state_dict() if method == "state_dict" else connector.load_state_dict({key: {}})
    [note] = caught.value.__notes__
    assert note.startswith(f"raised by {method}() of callback ")
    assert "from Trainer(callbacks=...)" in note


def test_a_state_under_a_former_key_is_found_and_upgraded():
    """It is handed over as if it had been saved under the present key, version and all."""

    class Renamed(Callback):
        state_key = "now"
        state_version = 2

        def state_dict(self):
            return {"count": 1}

        def load_state_dict(self, state_dict):
            self.taken = state_dict

        def upgrade_state_dict(self, state, from_version):
            return {"count": state["n"], "from": from_version}

        def former_state_key(self, keys):
            assert "other" not in keys
            return "then" if "then" in keys else None

    class Other(Callback):
        state_key = "other"

        def state_dict(self):
            return {}

    callback = Renamed()
    connector = CallbackConnector([callback, Other()], discover=False)
    states, upgraded = connector.upgrade_states(
        {"then": {"n": 7}, "other": {}, "gone": {}}, {"then": 1}
    )
    report = connector.load_state_dict(states)
    assert callback.taken == {"count": 7, "from": 1}
    assert upgraded == ("now from state_version 1 to 2",)
    assert report.unexpected == ("gone",)
    states, _ = connector.upgrade_states({"now": {"count": 3}, "then": {}}, {"now": 2})
    assert states == {"now": {"count": 3}, "then": {}}


@pytest.mark.parametrize(
    ("defined", "missing"),
    [("state_dict", "load_state_dict"), ("load_state_dict", "state_dict")],
)
@pytest.mark.parametrize("place", ["class", "base", "instance"])
def test_half_of_a_state_is_advised_of(defined, missing, place) -> None:
    """A state that is saved and not restored would be lost at a resume, without a word."""
    base = type("Base", (Callback,), {defined: lambda *args: {}} if place == "base" else {})
    kind = type("Half", (base,), {defined: lambda *args: {}} if place == "class" else {})
    callback = kind()
    if place == "instance":
        setattr(callback, defined, dict)
    with pytest.warns(TrainerHooksAdvice, match=rf"Half.* it has a {defined} and no {missing}"):
        CallbackConnector([callback], discover=False)


@pytest.mark.filterwarnings("error")
def test_a_whole_state_and_none_need_no_advice() -> None:
    """Nor does one of which a base class defines a half."""
    base = type("Base", (Callback,), {"state_dict": lambda self: {}})
    whole = type("Whole", (base,), {"load_state_dict": lambda self, state_dict: None})
    CallbackConnector([whole(), Callback()], discover=False)
