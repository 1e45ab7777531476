"""Every other way a plugin can be wrong, each as a real package that is built and installed."""

from __future__ import annotations

import json

import pytest

EXAMPLES = "trainer-hooks-monitoring,trainer-hooks-vision"  # they may be installed for good

pytestmark = pytest.mark.slow  # packages are built, and each fault has a process of its own

OURS = "trainer_hooks.callbacks_factory"
CALLBACK = "from trainer_hooks.callback import Callback\n"

BAD = {
    "bad-module": ("", "ModuleNotFoundError: No module named 'bad_module.absent'"),
    "bad-import": ("import not_there_at_all\n", "No module named 'not_there_at_all'"),
    "bad-exit": ("import sys\nsys.exit('no licence')\n", "SystemExit: no licence"),
    "bad-end": (
        "class Halt(BaseException):\n    pass\n\ndef make():\n    raise Halt('everything')\n",
        "Halt: everything",
    ),
    "bad-recursion": (
        "def deeper():\n    deeper()\n\ndeeper()\n",
        "RecursionError: maximum recursion depth exceeded",
    ),
    "bad-constructor": (
        CALLBACK + "class make(Callback):\n    def __init__(self, url):\n        self.url = url\n",
        (
            "is called without arguments, and that does not work for make(url): missing a required "
            "argument: 'url'. Give its arguments defaults, or name a function that makes the "
            "callback"
        ),
    ),
    "bad-arguments": (
        "def make(trainer, *, level):\n    return None\n",
        "that does not work for make(trainer, *, level): missing a required argument: 'trainer'",
    ),
    "bad-value": (
        "make = 7\n",
        "bad_value.factories:make is a int, not a callable factory: name a function",
    ),
    "bad-async": (
        "async def make():\n    return None\n",
        "define the factory with a plain `def`: it is called, not awaited",
    ),
    "bad-message": (
        (
            "class Odd(Exception):\n    def __str__(self):\n        raise LookupError\n\n"
            "def make():\n    raise Odd\n"
        ),
        "Odd: <str() of it raised LookupError>",
    ),
    "bad-signature": (
        CALLBACK + "class make(Callback):\n    def on_train_batch_end(self, trainer):\n"
        "        pass\n",
        (
            "the hook 'on_train_batch_end' cannot take what it is called with, positionally. "
            "Define on_train_batch_end(self, trainer, module, outputs, batch, batch_idx)"
        ),
    ),
    "bad-property": (
        CALLBACK + "class make(Callback):\n    @property\n    def state_key(self):\n"
        "        raise SystemExit('no run id')\n",
        "supplied what cannot be registered: SystemExit: no run id",
    ),
    "bad-repr": (
        (
            "class Long:\n    def __repr__(self):\n        return 'x' * 9999\n\n"
            "def make():\n    return Long()\n"
        ),
        f"the factory returned {'x' * 200}...: it must return",
    ),
}
COUNTING = (
    CALLBACK
    + """
class Counter{number}(Callback):
    def __init__(self):
        self.batches = 0

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.batches += 1

    def state_dict(self):
        return {{"batches": self.batches}}

    def load_state_dict(self, state_dict):
        self.batches = state_dict["batches"]

def make():
    return Counter{number}()
"""
)
SLOW = (
    CALLBACK
    + """
import time

class Slow(Callback):
    pass

time.sleep(1.05)

def make():
    return Slow()
"""
)
PRINTING = (
    CALLBACK
    + """
print("imported")

class Printing(Callback):
    pass

def make():
    print("made")
    return Printing()
"""
)
MISSPELT = (
    CALLBACK
    + """
class Misspelt(Callback):
    def on_train_bach_end(self, trainer, module, outputs, batch, batch_idx):
        pass

def make():
    return Misspelt()
"""
)
HALF = (
    CALLBACK
    + """
class Works(Callback):
    pass

class Broken(Callback):
    def on_fit_start(self):
        pass

def make():
    return [Works(), Broken()]
"""
)


def package(name: str, source: str, version: str = "1.0", **modules: str) -> tuple:
    target = "absent:make" if name == "bad-module" else "factories:make"
    return name, version, {"factories": source, **modules}, {OURS: {"monitor": target}}


@pytest.fixture(scope="module")
def sites(installed):
    """The groups of packages below, besides those of all tests."""
    installed.declare("bad", *(package(name, source) for name, (source, _) in BAD.items()))
    numbers = range(10)
    installed.declare(
        "good", *(package(f"good-{n}", COUNTING.format(number=n), f"1.{n}") for n in numbers)
    )
    installed.declare(
        "odd",
        package("odd-slow", SLOW),
        package("odd-printing", PRINTING),
        package("odd-misspelt", MISSPELT),
        package("odd-half", HALF),
        package("odd-interrupt", "raise KeyboardInterrupt\n"),
    )
    installed.declare("twin", package("acme-twin", COUNTING.format(number=1), "1.0"))
    installed.declare("older twin", package("acme-twin", COUNTING.format(number=2), "0.9"))
    return installed


def test_each_fault_is_named_once_with_its_cause_and_the_way_out(sites, probe) -> None:
    """All faults at once: for each plugin one warning, with its name, its cause, what to do."""
    probed = probe("bad")
    assert probed.error is None
    assert probed.callbacks == []
    assert sorted(probed.with_status("failed")) == sorted(f"{name}:monitor" for name in BAD)
    assert len(probed.warnings) == len(BAD)
    for name, (_, cause) in BAD.items():
        [message] = [text for text in probed.warnings if f"plugin {name} 1.0" in text]
        assert cause in message
        assert f"Mend or uninstall {name}, or switch it off" in message
        assert f"TRAINER_HOOKS_BLOCK_PLUGINS={name} in the environment" in message


@pytest.mark.parametrize("name", ["bad-exit", "bad-end", "bad-signature"])
def test_each_fault_stops_on_request(sites, probe, name: str) -> None:
    """With `plugin_errors="raise"` it is an error, whatever the plugin raised."""
    probed = probe("bad", plugin_errors="raise", ALLOW_PLUGINS=name)
    assert probed.error.startswith(f"PluginError: plugin {name} 1.0")
    assert BAD[name][1] in probed.error


def test_a_slow_plugin_is_named_with_its_time(sites, probe) -> None:
    """A plugin that takes over a second takes part, and the user learns who made them wait."""
    probed = probe("odd", ALLOW_PLUGINS="odd-slow")
    assert probed.callbacks == ["Slow"]
    [message] = probed.warnings
    assert message.startswith("plugin odd-slow 1.0 (entry point 'monitor' = odd_slow.factories")
    assert "took 1." in message
    assert "s to load, and Trainer(...) waits for it" in message
    assert "import what is heavy inside the hooks" in message
    assert "TRAINER_HOOKS_BLOCK_PLUGINS=odd-slow" in message


def test_a_plugin_may_print(sites, probe) -> None:
    """What a plugin prints comes through, and harms nothing."""
    probed = probe("odd", ALLOW_PLUGINS="odd-printing")
    assert (probed.callbacks, probed.warnings) == (["Printing"], [])
    assert probed.stdout == "imported\nmade\n"


def test_a_misspelt_hook_is_warned_of_by_name(sites, probe) -> None:
    """The callback takes part, and the warning says whose method, and which hook was meant."""
    probed = probe("odd", ALLOW_PLUGINS="odd-misspelt")
    assert probed.callbacks == ["Misspelt"]
    [message] = probed.warnings
    assert "callback Misspelt (state_key 'Misspelt', from plugin odd-misspelt 1.0)" in message
    assert "'on_train_bach_end' is no hook" in message
    assert "Did you mean 'on_train_batch_end'?" in message


def test_a_misspelt_hook_is_an_error_where_hooks_are_strict(sites, probe) -> None:
    """With `strict_hooks=True` it ends the construction, and the error names the plugin."""
    probed = probe("odd", ALLOW_PLUGINS="odd-misspelt", strict_hooks=True)
    assert probed.error.startswith("PluginError: plugin odd-misspelt 1.0")
    assert "'on_train_bach_end' is no hook" in probed.error


@pytest.mark.parametrize("name", ["bad-import", "bad-property"])
def test_strict_hooks_are_about_hooks(sites, probe, name: str) -> None:
    """A plugin that is broken in another way stays a warning with `strict_hooks=True`."""
    probed = probe("bad", ALLOW_PLUGINS=name, strict_hooks=True)
    assert probed.error is None
    assert len(probed.warnings) == 1


def test_of_several_callbacks_those_that_work_take_part(sites, probe) -> None:
    """One callback with a hook that cannot be called is left out; its sibling takes part."""
    probed = probe("odd", ALLOW_PLUGINS="odd-half")
    assert probed.callbacks == ["Works"]
    status, reason, _ = probed.plugins["odd-half:monitor"]
    assert status == "loaded"
    assert "callback Broken" in reason
    [message] = probed.warnings
    assert "the hook 'on_fit_start' cannot take what it is called with" in message


def test_ctrl_c_while_a_plugin_is_imported_gets_through(sites, run_with_plugins) -> None:
    """A KeyboardInterrupt out of a plugin is taken for the user's: the program ends by it."""
    code = "from trainer_hooks.connector.connector import CallbackConnector\nCallbackConnector()\n"
    done = run_with_plugins(code, "odd", TRAINER_HOOKS_ALLOW_PLUGINS="odd-interrupt")
    assert done.returncode != 0
    assert "KeyboardInterrupt" in done.stderr.splitlines()[-1]
    assert "TrainerHooksWarning" not in done.stderr


@pytest.mark.parametrize(
    ("order", "version", "callback"),
    [(("twin", "older twin"), "1.0", "Counter1"), (("older twin", "twin"), "0.9", "Counter2")],
)
def test_of_one_distribution_in_two_places_the_first_counts(
    sites, probe, order: tuple[str, str], version: str, callback: str
) -> None:
    """As Python imports from the first place on `sys.path`; the other one is listed as hidden."""
    code_options = {"ALLOW_PLUGINS": "acme-twin"}
    probed = probe(*order, **code_options)
    assert probed.callbacks == [callback]
    assert [record["version"] for record in probed.records] == [version]
    assert probed.warnings == []


def test_the_one_in_the_other_place_is_on_record(sites, run_with_plugins) -> None:
    """The hidden installation has its version, and a reason that names both places."""
    code = (
        "from trainer_hooks.hooks.discovery import installed_plugins\n"
        "for p in installed_plugins():\n"
        "    if p.distribution == 'acme-twin':\n"
        "        print(p.version, p.status, p.reason)\n"
    )
    done = run_with_plugins(code, "twin", "older twin")
    first, second = done.stdout.splitlines()
    assert first == "1.0 found "
    places = f"acme-twin in {sites['twin']} comes before the one in {sites['older twin']}"
    assert second == f"0.9 hidden {places}"


def test_damaged_files_of_entry_points_end_no_run(installed, probe, tmp_path, monkeypatch) -> None:
    """One that is no text is told as broken; a line that makes no sense costs that line alone."""
    for name, content in (
        ("no-text", b"[callbacks_factory]\nx = \xff\xfe\n"),
        ("half-a-line", f"[{OURS}]\nstray\nworks = json:JSONDecodeError\n".encode()),
    ):
        folder = tmp_path / f"{name}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_bytes(content)
    monkeypatch.setitem(installed, "damaged", tmp_path)
    probed = probe("damaged")
    assert set(probed.plugins) == {"half-a-line:stray", "half-a-line:works", "no-text:x"}
    assert len(probed.warnings) == 3


FIT = """
import contextlib, io, json, sys, warnings
import torch
from trainer_hooks import Module, Trainer

class Line(Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, batch_idx):
        return self.layer(batch).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    trainer = Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False,
                      enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(Line(), torch.ones(3, 2, 4))
print(json.dumps({
    "counts": {type(c).__name__: c.batches for c in trainer.callbacks},
    "warned": [str(w.message) for w in caught],
    "suppliers": [supplier for _, supplier in trainer.callback_origins],
}))
"""


@pytest.mark.slow  # twenty packages are built
def test_a_fit_with_ten_good_and_ten_bad_plugins_trains(sites, run_with_plugins) -> None:
    """The good ones all see every batch, and each bad one is named once."""
    done = run_with_plugins(FIT, "good", "bad", TRAINER_HOOKS_BLOCK_PLUGINS=EXAMPLES)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert told["counts"] == {f"Counter{n}": 6 for n in range(10)}
    assert told["suppliers"] == [f"plugin good-{n} 1.{n}" for n in range(10)]
    assert len(told["warned"]) == len(BAD) >= 10
    for name in BAD:
        assert sum(f"plugin {name} 1.0" in message for message in told["warned"]) == 1
