"""Discovery of plugins, on a made-up set of entry points; tests/plugins has real packages."""

from __future__ import annotations

import logging
import os
import random
import signal
import sys
import threading
import warnings
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from trainer_hooks.callbacks import EarlyStopping
from trainer_hooks.errors import PluginError, TrainerHooksWarning
from trainer_hooks.hooks.discovery import installed_plugins, load_plugins
from trainer_hooks.hooks.plugin import GROUPS, LIGHTNING_GROUPS, Plugin, PluginFilter

OURS, BARE = GROUPS


class Made:
    """Stands for a callback: what the factories below make."""

    def __init__(self, name: str) -> None:
        self.name = name


def is_made(item: object) -> bool:
    return isinstance(item, Made)


def load(plugins: object = True, errors: str = "warn", **environ: str) -> tuple[Plugin, ...]:
    """Discover with an environment of our own: keywords without the common prefix."""
    variables = {f"TRAINER_HOOKS_{name}": value for name, value in environ.items()}
    return load_plugins(PluginFilter.of(plugins, variables), is_made, errors)  # type: ignore[arg-type]


class Registry:
    """The made-up entry points of the interpreter, and a module with factories for them."""

    def __init__(self, module: ModuleType, distributions) -> None:
        self.module = module
        self.distributions = distributions

    def add(self, distribution: str, name: str, make=None, group=OURS, version="1.0") -> None:
        """Register an entry point whose factory is `make`."""
        factory = f"make_{name.replace('-', '_')}_of_{distribution.replace('-', '_')}"
        if not hasattr(self.module, factory):
            setattr(self.module, factory, make or (lambda: Made(f"{distribution}:{name}")))
        self.add_value(distribution, name, f"{self.module.__name__}:{factory}", group, version)

    def add_value(self, distribution, name, value, group=OURS, version="1.0") -> None:
        known = [d for d in self.distributions if d.name == distribution]
        if not known:
            known = [self.distributions.make(distribution, version)]
            self.distributions.extend(known)
        known[0].entries.append((name, value, group))


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch, installed_distributions) -> Registry:
    """An interpreter in which no plugin is installed but those that a test adds."""
    module = ModuleType("made_up_factories")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return Registry(module, installed_distributions)


def loaded(records: tuple[Plugin, ...]) -> list[str]:
    return [record.name for record in records if record.status == "loaded"]


def test_group_names_are_frozen() -> None:
    """These are the groups that packages register under; a change would lose their callbacks."""
    assert GROUPS == ("trainer_hooks.callbacks_factory", "callbacks_factory")
    assert LIGHTNING_GROUPS == (
        "lightning.pytorch.callbacks_factory",
        "pytorch_lightning.callbacks_factory",
    )


def test_nothing_installed_is_nothing_found(registry: Registry) -> None:
    """Without plugins discovery returns no records and does not complain."""
    assert load() == ()


def test_installed_lists_without_importing(registry: Registry) -> None:
    """Listing tells distribution, version, name, group and value, and imports nothing."""
    registry.add_value("dist", "one", "not_there_at_all:factory", version="2.1")
    assert installed_plugins() == (Plugin("dist", "2.1", "one", OURS, "not_there_at_all:factory"),)


@pytest.mark.parametrize("group", GROUPS)
def test_both_groups_are_read(registry: Registry, group: str) -> None:
    """A factory in the group that the docs teach is loaded, and so is one in the bare group."""
    registry.add("dist", "one", group=group)
    [record] = load()
    assert record.status == "loaded"
    assert record.group == group
    assert [made.name for made in record.callbacks] == ["dist:one"]


def test_a_factory_in_both_groups_is_called_once(registry: Registry) -> None:
    """One factory of one distribution in two groups is one plugin, under the first group."""
    calls = []
    registry.add("dist", "one", lambda: calls.append(1) or Made("x"), group=BARE)
    registry.add("dist", "one", group=OURS)
    [record] = load()
    assert calls == [1]
    assert record.group == OURS


def test_two_factories_of_one_distribution_are_two(registry: Registry) -> None:
    """Only the same factory counts as a duplicate, not the same distribution."""
    registry.add("dist", "one")
    registry.add("dist", "two")
    assert loaded(load()) == ["one", "two"]


def test_two_distributions_with_one_entry_point_name_are_two(registry: Registry) -> None:
    """Equal entry-point names of two distributions do not hide each other."""
    registry.add("alpha", "one")
    registry.add("beta", "one")
    assert [(p.distribution, p.name) for p in load()] == [("alpha", "one"), ("beta", "one")]


def test_sorted_by_distribution_and_name(registry: Registry) -> None:
    """Loading order depends on names alone, whatever order the interpreter lists them in."""
    for distribution, name in [("b_b", "x"), ("Z", "x"), ("a", "z"), ("B-A", "x"), ("a", "b")]:
        registry.add(distribution, name)
    assert [(p.distribution, p.name) for p in load()] == [
        ("a", "b"),
        ("a", "z"),
        ("B-A", "x"),
        ("b_b", "x"),
        ("Z", "x"),
    ]


@pytest.mark.parametrize("group", LIGHTNING_GROUPS)
def test_lightning_plugins_wait_to_be_named(registry: Registry, group: str) -> None:
    """A Lightning plugin is listed with the reason it was left out, and loaded when named."""
    registry.add("their-dist", "theirs", group=group)
    [record] = load()
    assert record.status == "blocked"
    assert "a Lightning plugin: name it" in record.reason
    assert loaded(load(["theirs"])) == ["theirs"]


@pytest.mark.parametrize("off", [False, [], ()])
def test_nothing_is_looked_up_when_off(registry: Registry, off: object) -> None:
    """With `plugins=False`, or no name at all, entry points are not even listed."""
    registry.add("dist", "one")
    assert load(off) == ()
    assert registry.distributions.looked_up == 0


@pytest.mark.parametrize("value", ["1", "true", "YES", "on"])
@pytest.mark.parametrize("plugins", [True, ["one"], ["misspelt"]])
def test_the_environment_switches_all_off(registry: Registry, value: str, plugins: object) -> None:
    """`TRAINER_HOOKS_DISABLE_PLUGINS` wins over whatever the code asks for; nothing is listed."""
    registry.add("dist", "one")
    assert load(plugins, DISABLE_PLUGINS=value) == ()
    assert registry.distributions.looked_up == 0


@pytest.mark.parametrize("value", ["", "0", "false", "No"])
def test_a_falsy_switch_is_no_switch(registry: Registry, value: str) -> None:
    """The variable set to a word for "no" leaves plugins on."""
    registry.add("dist", "one")
    assert loaded(load(DISABLE_PLUGINS=value)) == ["one"]


@pytest.mark.parametrize("plugins", [["one"], ("ONE",), {"Dist.A"}, "one", "dist_a", iter(["one"])])
def test_names_choose(registry: Registry, plugins: object) -> None:
    """`plugins=` takes names of distributions or entry points, spelt in any PEP 503 way."""
    registry.add("dist-a", "one")
    registry.add("dist-b", "two")
    records = load(plugins)
    assert loaded(records) == ["one"]
    [other] = [record for record in records if record.name == "two"]
    assert other.status == "blocked"
    assert other.reason == "not named in Trainer(plugins=[...])"


def test_a_group_chooses(registry: Registry) -> None:
    """`plugins=` takes the name of a group as well, whether anything is installed in it or not."""
    registry.add("dist-a", "one", group=BARE)
    registry.add("dist-b", "one", group=OURS)
    registry.add("dist-c", "one", group=LIGHTNING_GROUPS[0])
    for group, distribution in ((BARE, "dist-a"), (LIGHTNING_GROUPS[0], "dist-c")):
        records = load([group])
        assert [r.distribution for r in records if r.status == "loaded"] == [distribution]
    assert loaded(load(["trainer_hooks.hooks"])) == []
    assert loaded(load(BLOCK_PLUGINS=BARE)) == ["one"]


@pytest.mark.parametrize("errors", ["warn", "raise"])
def test_a_misspelt_name_is_an_error(registry: Registry, errors: str) -> None:
    """A wanted plugin that is not installed raises, with the nearest name and all installed."""
    registry.add("dist-a", "run-journal")
    with pytest.raises(PluginError) as caught:
        load(["run-jurnal"], errors)
    message = str(caught.value)
    assert "'run-jurnal' in Trainer(plugins=[...]) is not installed" in message
    assert "Did you mean 'run-journal'?" in message
    assert "Installed: dist-a, run-journal." in message


@pytest.mark.parametrize("blocked", ["one", "dist_a", " ONE ,", "Dist.A,"])
def test_the_environment_blocks_by_name(registry: Registry, blocked: str) -> None:
    """`TRAINER_HOOKS_BLOCK_PLUGINS` takes out the named; the rest is loaded."""
    registry.add("dist-a", "one")
    registry.add("dist-b", "two")
    records = load(BLOCK_PLUGINS=blocked)
    assert loaded(records) == ["two"]
    assert records[0].reason == "blocked by the environment variable TRAINER_HOOKS_BLOCK_PLUGINS"


def test_the_environment_blocks_what_is_not_installed(registry: Registry) -> None:
    """A misspelt name would let the plugin take part, so it is an error."""
    registry.add("dist-a", "run-journal")
    with pytest.raises(PluginError) as caught:
        load(BLOCK_PLUGINS="run-jurnal")
    message = str(caught.value)
    assert "'run-jurnal' in TRAINER_HOOKS_BLOCK_PLUGINS is not installed" in message
    assert "Did you mean 'run-journal'?" in message


def test_the_environment_allows_by_name(registry: Registry) -> None:
    """`TRAINER_HOOKS_ALLOW_PLUGINS` takes out all but the named."""
    registry.add("dist-a", "one")
    registry.add("dist-b", "two")
    records = load(ALLOW_PLUGINS="dist-b")
    assert loaded(records) == ["two"]
    assert "TRAINER_HOOKS_ALLOW_PLUGINS" in records[0].reason


def test_an_empty_allowance_allows_none(registry: Registry) -> None:
    """The allow list set to nothing is an empty list, and not the same as unset."""
    registry.add("dist", "one")
    assert loaded(load(ALLOW_PLUGINS="")) == []


def test_the_environment_only_takes_away(registry: Registry) -> None:
    """What the code left out is not brought back by an allow list; block wins over allow."""
    registry.add("dist-a", "one")
    registry.add("dist-b", "two")
    registry.add("theirs", "three", group=LIGHTNING_GROUPS[0])
    assert loaded(load(["one"], ALLOW_PLUGINS="two")) == []
    assert loaded(load(False, ALLOW_PLUGINS="two")) == []
    assert loaded(load(ALLOW_PLUGINS="three")) == []
    assert loaded(load(ALLOW_PLUGINS="one,two", BLOCK_PLUGINS="one")) == ["two"]


def test_the_process_environment_is_read_at_call_time(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable set after the import counts."""
    registry.add("dist", "one")
    monkeypatch.setenv("TRAINER_HOOKS_DISABLE_PLUGINS", "1")
    assert PluginFilter.of(True).takes_none
    monkeypatch.delenv("TRAINER_HOOKS_DISABLE_PLUGINS")
    assert not PluginFilter.of(True).takes_none


@pytest.mark.parametrize("sequence", [list, tuple])
def test_a_factory_may_return_several(registry: Registry, sequence: type) -> None:
    """A list or tuple of callbacks is taken whole, in its order."""
    registry.add("dist", "one", lambda: sequence([Made("a"), Made("b")]))
    [record] = load()
    assert [made.name for made in record.callbacks] == ["a", "b"]


def test_a_factory_may_return_none_of_them(registry: Registry) -> None:
    """An empty list is a factory's way to say that it has nothing to add today."""
    registry.add("dist", "one", list)
    [record] = load()
    assert (record.status, record.callbacks) == ("loaded", ())


def test_a_class_may_be_its_own_factory(registry: Registry) -> None:
    """An entry point that names a class is called like any factory."""
    registry.module.Journal = type("Journal", (Made,), {"__init__": lambda self: None})
    registry.add_value("dist", "one", "made_up_factories:Journal")
    [record] = load()
    assert type(record.callbacks[0]).__name__ == "Journal"


def _raises() -> object:
    raise LookupError("no licence key")


def _exits() -> object:
    raise SystemExit(2)


class _OddSignature:
    __signature__ = "of a text nobody makes one"

    def __call__(self):
        raise LookupError("called")


def _generates():
    yield Made("lazy")


BROKEN = {
    "raises": (_raises, "LookupError: no licence key"),
    "exits": (_exits, "SystemExit: 2"),
    "none": (lambda: None, "the factory returned None (is a `return` missing?)"),
    "class": (lambda: Made, "(a class: return an instance)"),
    "string": (lambda: "journal", "the factory returned 'journal': it must return a callback"),
    "generator": (_generates, "(it can be read only once: return a list)"),
    "number-in-list": (lambda: [Made("a"), 3], "the factory's list holds 3, which is no callback"),
    "class-in-list": (lambda: [Made], "(a class: return an instance), which is no callback"),
    # of which Python can tell no signature: the call itself is tried
    "odd-signature": (_OddSignature(), "LookupError: called"),
    "needs-argument": (lambda model: Made("a"), "without arguments, and that does not work for"),
    "dict": (lambda: {"a": Made("a")}, "it must return a callback or a list of callbacks"),
}


@pytest.mark.parametrize("kind", list(BROKEN))
def test_a_broken_plugin_is_reported_and_stops_no_other(registry: Registry, kind: str) -> None:
    """A broken plugin gets one warning with what is needed to act; those around it are loaded."""
    make, cause = BROKEN[kind]
    registry.add("alpha", "before")
    registry.add("broken-dist", kind, make, version="3.2.1")
    registry.add("zeta", "behind")
    with pytest.warns(TrainerHooksWarning) as caught:
        records = load()
    assert loaded(records) == ["before", "behind"]
    assert records[1].status == "failed"
    assert records[1].callbacks == ()
    assert cause in records[1].reason
    [warning] = caught
    message = str(warning.message)
    assert f"plugin broken-dist 3.2.1 (entry point '{kind}' = made_up_factories:" in message
    assert f"group '{OURS}'" in message
    assert f"could not be loaded: {records[1].reason}" in message
    assert "TRAINER_HOOKS_BLOCK_PLUGINS=broken-dist" in message
    assert "Trainer(plugins=False)" in message
    assert ".." not in message


def _misuses_the_package() -> object:
    return EarlyStopping("loss", patience=-1)


@pytest.mark.parametrize("make", [_raises, _misuses_the_package])
def test_the_plugins_own_line_is_named(registry: Registry, make) -> None:
    """The reason ends with the line of the plugin that failed, not with one of ours below it."""
    registry.add("broken-dist", "cb", make)
    with pytest.warns(TrainerHooksWarning):
        [record] = load()
    assert record.reason.endswith(f" ({__file__}, line {make.__code__.co_firstlineno + 1})")


@pytest.mark.parametrize("kind", list(BROKEN))
def test_a_broken_plugin_raises_on_request(registry: Registry, kind: str) -> None:
    """With `errors="raise"` the same message is an error, with the plugin's own as its cause."""
    make, cause = BROKEN[kind]
    registry.add("broken-dist", kind, make)
    with pytest.raises(PluginError) as caught:
        load(errors="raise")
    assert "plugin broken-dist 1.0" in str(caught.value)
    assert cause in str(caught.value)
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize(
    ("value", "cause"),
    [
        ("not_there_at_all:make", "ModuleNotFoundError: No module named 'not_there_at_all'"),
        ("made_up_factories:absent", "AttributeError"),
        ("made_up_factories:__name__", "is a str, not a callable factory"),
        ("not a reference!", "Invalid object reference"),
    ],
)
def test_an_entry_point_that_leads_nowhere_is_reported(
    registry: Registry, value: str, cause: str
) -> None:
    """A missing module or name, a value that is no factory: each is reported with its cause."""
    registry.add_value("dist", "one", value)
    with pytest.warns(TrainerHooksWarning, match="plugin dist 1.0") as caught:
        [record] = load()
    assert record.status == "failed"
    assert cause in str(caught[0].message)


def test_ctrl_c_in_a_factory_is_not_swallowed(registry: Registry) -> None:
    """A user who interrupts while plugins load is obeyed."""

    def interrupt() -> object:
        raise KeyboardInterrupt

    registry.add("dist", "one", interrupt)
    with pytest.raises(KeyboardInterrupt):
        load()


def test_a_blocked_plugin_is_not_even_imported(registry: Registry) -> None:
    """Blocking helps against a plugin whose import is the trouble."""
    registry.add_value("dist", "one", "not_there_at_all:make")
    [record] = load(BLOCK_PLUGINS="dist")
    assert record.status == "blocked"


def test_the_factory_is_called_anew_each_time(registry: Registry) -> None:
    """Two discoveries get two callbacks, so two trainers do not share one."""
    registry.add("dist", "one")
    [first], [second] = load(), load()
    assert first.callbacks[0] is not second.callbacks[0]


@pytest.mark.parametrize("trouble", [FileNotFoundError, KeyError, TypeError, None])
def test_a_plugin_without_metadata_goes_by_its_package(
    registry: Registry, trouble: type[Exception] | None
) -> None:
    """A distribution that cannot tell its name, as after half an uninstall, ends no run."""

    class Nameless(registry.distributions.make):
        @property
        def metadata(self) -> dict[str, None] | None:
            if trouble is TypeError:
                return None
            if trouble:
                raise trouble("METADATA")
            return {"Name": None, "Version": None}

    nameless = Nameless("?", entries=[("one", "half_gone.factories:make", OURS)])
    registry.distributions.append(nameless)
    [plugin] = installed_plugins()
    assert (plugin.distribution, plugin.version) == ("half_gone", "?")


def test_the_warning_points_at_the_caller(registry: Registry) -> None:
    """The line that Python shows with the warning is the user's, not one of the library."""
    registry.add("dist", "one", lambda: None)
    with pytest.warns(TrainerHooksWarning) as caught:
        load()
    assert caught[0].filename == __file__


def test_the_plugins_traceback_goes_to_the_log(
    registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    """At debug level the log holds the traceback into the plugin's code."""
    registry.add("dist", "one", _raises)
    with (
        caplog.at_level(logging.DEBUG, logger="trainer_hooks"),
        pytest.warns(TrainerHooksWarning),
    ):
        load()
    assert "in _raises" in caplog.text


@pytest.mark.parametrize(
    ("version", "statuses"), [("1.0", ["found"]), ("0.9", ["found", "hidden"])]
)
def test_one_distribution_in_two_places(registry: Registry, version: str, statuses: list) -> None:
    """Two versions are told apart; an editable installation, found twice, is one."""
    make = registry.distributions.make
    entry = ("one", "package.factories:make", OURS)
    registry.distributions += [
        make("dist", "1.0", [entry]),
        make("Dist", version, [entry], place="elsewhere"),
    ]
    assert [plugin.status for plugin in installed_plugins()] == statuses


# --- isolation ---


def readings() -> dict[str, object]:
    """Return the settings of the process that a plugin must leave as they are."""
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state()[1].tobytes(),
        "torch": torch.get_rng_state().tolist(),
        "dtype": torch.get_default_dtype(),
        "grad": torch.is_grad_enabled(),
        "folder": Path.cwd(),
        "handlers": {number: signal.getsignal(number) for number in signal.Signals},
        "filters": list(warnings.filters),
        "environment": dict(os.environ),
    }


def ignore_its_own() -> None:
    warnings.filterwarnings("ignore", message="made up for a library")


CHANGES = {
    "random numbers": (
        lambda: (random.random(), np.random.rand(2), torch.rand(3), torch.manual_seed(5)),
        "",
    ),
    "dtype": (lambda: torch.set_default_dtype(torch.float64), "torch's default dtype"),
    "grad": (lambda: torch.set_grad_enabled(False), "torch's grad mode"),
    "folder": (lambda: os.chdir(Path.cwd().parent), "the working directory"),
    "handler": (
        lambda: signal.signal(signal.SIGUSR2, signal.SIG_IGN), "the handler of SIGUSR2",
    ),
    "filters": (lambda: warnings.simplefilter("ignore"), "the filters of all warnings"),
    "filters of a builtin": (
        lambda: warnings.simplefilter("once", DeprecationWarning), "the filters of all warnings",
    ),
    "no filters": (warnings.resetwarnings, "the filters of all warnings"),
    "variable": (
        lambda: os.environ.update(OF_THE_USER="theirs"), "the environment variable OF_THE_USER",
    ),
    "no variable": (
        lambda: os.environ.pop("OF_THE_USER"), "the environment variable OF_THE_USER",
    ),
}  # fmt: skip


@pytest.mark.posix  # a handler of SIGUSR1 among them
@pytest.mark.parametrize("ends", ["returns", "raises"])
@pytest.mark.parametrize("kind", CHANGES)
def test_a_factory_changes_nothing_for_the_user(
    registry: Registry, kind: str, ends: str, monkeypatch, tmp_path, caplog
) -> None:
    """Also one that fails; what it changed but random numbers is told of, once, by its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OF_THE_USER", "mine")
    change, told = CHANGES[kind]

    def make() -> Made:
        change()
        if ends == "raises":
            raise LookupError("on purpose")
        return Made("callback")

    name = f"{kind} {ends}".replace(" ", "-")
    registry.add(name, "one", make)
    before = readings()
    with warnings.catch_warnings(record=True), caplog.at_level(logging.INFO, "trainer_hooks"):
        warnings.filters[:] = before["filters"]
        for _ in range(2):
            with pytest.warns(TrainerHooksWarning) if ends == "raises" else nullcontext():
                load()
            assert readings() == before
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
    factory = f"made_up_factories:make_one_of_{name.replace('-', '_')}"
    line = (
        f"plugin {name} 1.0 (entry point 'one' = {factory}), as it was loaded, changed {told}, "
        "which was restored. Its author can do so in a callback's setup, for the length of a run."
    )
    assert lines == ([line] if told else [])


def test_settings_of_libraries_that_a_factory_imports_stay(
    registry: Registry, monkeypatch, caplog
) -> None:
    """They need them later: filters of their own warnings, and variables that nobody had set."""
    monkeypatch.setenv("OF_A_LIBRARY", "")
    monkeypatch.delenv("OF_A_LIBRARY")

    def make() -> Made:
        ignore_its_own()
        os.environ["OF_A_LIBRARY"] = "1"
        return Made("callback")

    registry.add("imports", "one", make)
    with warnings.catch_warnings(), caplog.at_level(logging.INFO, "trainer_hooks"):
        load()
        warnings.warn("made up for a library", UserWarning, stacklevel=1)
        assert os.environ["OF_A_LIBRARY"] == "1"
    assert "set OF_A_LIBRARY in the environment, which stays" in caplog.text


def test_plugins_are_loaded_in_a_thread(registry: Registry) -> None:
    """There Python sets no handlers of signals, and none is restored."""
    registry.add("dist", "one", lambda: (torch.rand(3), Made("callback"))[1])
    before, records = torch.get_rng_state(), []
    thread = threading.Thread(target=lambda: records.extend(load()))
    thread.start()
    thread.join()
    assert [record.status for record in records] == ["loaded"]
    assert torch.equal(torch.get_rng_state(), before)


def test_the_import_of_a_plugin_changes_no_numbers(registry: Registry, tmp_path, monkeypatch):
    """Random numbers that a module draws as it is imported are not drawn for the user."""
    (tmp_path / "draws_at_import.py").write_text(
        "import random, torch\nN = random.random(), torch.rand(2)\nmake = list\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    registry.add_value("draws", "one", "draws_at_import:make")
    before = readings()
    try:
        assert [record.status for record in load()] == ["loaded"]
    finally:
        sys.modules.pop("draws_at_import", None)
    assert readings() == before


def test_the_import_of_torch_is_not_charged_to_a_plugin(
    registry: Registry, tmp_path, monkeypatch
) -> None:
    """A program has it before; in a command, the first plugin that needs it would pay for all."""
    # stands for torch, which is imported here; its seconds are those of a clock of the test
    monkeypatch.setattr("trainer_hooks.hooks.discovery._LOADED_BEFORE", "stands_for_torch")
    now = [0.0]
    monkeypatch.setattr("trainer_hooks.hooks.discovery.time.perf_counter", lambda: now[0])
    heavy = ModuleType("advances_the_clock")
    heavy.now = now
    monkeypatch.setitem(sys.modules, heavy.__name__, heavy)
    (tmp_path / "stands_for_torch.py").write_text(
        "from advances_the_clock import now\nnow[0] += 9.0\n"
    )
    for name, own in (("first_of_two", 0.25), ("second_of_two", 0.5)):
        (tmp_path / f"{name}.py").write_text(
            f"import stands_for_torch, advances_the_clock\n"
            f"advances_the_clock.now[0] += {own}\nmake = list\n"
        )
        registry.add_value(name, "one", f"{name}:make")
    monkeypatch.syspath_prepend(tmp_path)
    finders = list(sys.meta_path)
    try:
        assert [(record.name, record.seconds) for record in load()] == [("one", 0.25), ("one", 0.5)]
    finally:
        for name in ("first_of_two", "second_of_two", "stands_for_torch"):
            sys.modules.pop(name, None)
    assert now == [9.75]
    assert sys.meta_path == finders


GROUP = f"[{OURS}]\n".encode()
DAMAGED = {
    "half a header": (b"[trainer_hooks.callb", "line 1, '[trainer_hooks.callb', is no header"),
    "an open header": (GROUP[:-2] + b"\nn = m:f\n", f"line 1, '[{OURS}', is no header of a group"),
    "a header with more": (GROUP.strip() + b" # mine\nn = m:f\n", "is no header of a group"),
    "no header": (b"callbacks_factory\nn = m:f\n", "line 1, 'callbacks_factory', stands before"),
    "two bytes a character": ((GROUP + b"n = m:f\n").decode().encode("utf-16"), "is not UTF-8"),
    "the same, in order": ((GROUP + b"n = m:f\n").decode().encode("utf-16-le"), "null bytes"),
    "null bytes": (b"\0" * 80, "it holds null bytes"),
}


def write_distribution(folder: Path, content: bytes, requires: str = "trainer_hooks") -> None:
    info = folder / "acme_damaged-3.1.dist-info"
    info.mkdir()
    metadata = "Metadata-Version: 2.1\nName: acme-damaged\nVersion: 3.1\n"
    (info / "METADATA").write_text(f"{metadata}Requires-Dist: {requires}>=0.1\n")
    (info / "entry_points.txt").write_bytes(content)


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_file_of_entry_points_is_told_of(kind, tmp_path, monkeypatch) -> None:
    """A package whose plugins cannot be known is listed as failed, and no run passes it over."""
    content, words = DAMAGED[kind]
    write_distribution(tmp_path, content)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.warns(TrainerHooksWarning, match="plugin acme-damaged 3.1"):
        records = load(["acme-damaged"])
    [record] = [record for record in records if record.distribution == "acme-damaged"]
    assert record.status == "failed"
    assert words in record.reason
    assert str(tmp_path) in record.reason


@pytest.mark.parametrize("kind", ["null bytes", "half a header", "no header"])
def test_a_damaged_file_of_somebody_elses_is_passed_over(kind, tmp_path, monkeypatch) -> None:
    """A distribution that has nothing to do with this package concerns no run of it."""
    content = DAMAGED[kind][0].replace(b"trainer_hooks", b"pytest11").replace(b"callbacks_f", b"f")
    write_distribution(tmp_path, content, requires="pytest")
    monkeypatch.syspath_prepend(tmp_path)
    assert not [p for p in installed_plugins() if p.distribution == "acme-damaged"]


def test_a_mark_of_the_byte_order_is_no_damage(tmp_path, monkeypatch) -> None:
    """Some editors write one, and the first group is found all the same."""
    write_distribution(tmp_path, b"\xef\xbb\xbf" + GROUP + b"n = m:f\n")
    monkeypatch.syspath_prepend(tmp_path)
    [plugin] = [p for p in installed_plugins() if p.distribution == "acme-damaged"]
    assert (plugin.name, plugin.group, plugin.status) == ("n", OURS, "found")
