"""Discovery in interpreters in which real packages are installed."""

from __future__ import annotations

import pytest

FAULTS = {
    "import-error": "ModuleNotFoundError: No module named 'a_package_that_is_not_there'",
    "no-such-name": "AttributeError: module 'faulty_callbacks.factories' has no attribute 'absent'",
    "raises": "LookupError: no licence key in the vault",
    "returns-none": "TypeError: the factory returned None (is a `return` missing?): it must",
    "returns-class": "TypeError: the factory returned <class 'faulty_callbacks.factories.Fine'>",
    "returns-string": "TypeError: the factory returned 'a callback': it must return a callback",
    "returns-generator": "TypeError: the factory returned <generator object returns_generator",
}


@pytest.mark.slow
def test_nothing_installed_is_nothing_loaded(probe) -> None:
    """Without a plugin there is no callback, no record and no warning."""
    probed = probe()
    assert (probed.callbacks, probed.plugins, probed.warnings) == ([], {}, [])


@pytest.mark.slow
def test_an_installed_package_takes_part_unmentioned(probe) -> None:
    """Installing the example is all it takes; what was loaded is on record for the checkpoint."""
    probed = probe("example")
    assert "EventLog" in probed.callbacks
    assert probed.warnings == []
    assert {
        "distribution": "trainer-hooks-monitoring",
        "version": "0.1.0",
        "entry_point": "event-log",
        "class": "EventLog",
        "state_key": "EventLog",
    } in probed.records


@pytest.mark.slow
@pytest.mark.parametrize("fault", list(FAULTS))
def test_a_faulty_plugin_is_named_with_what_to_do(probe, fault: str) -> None:
    """One warning: the distribution, its version, the entry point, the cause, the way out."""
    probed = probe("faulty", ALLOW_PLUGINS=fault)
    [message] = probed.warnings
    assert f"plugin faulty-callbacks 2.3.4 (entry point '{fault}' = faulty_callbacks." in message
    assert f"could not be loaded: {FAULTS[fault]}" in message
    assert message.endswith(
        "Mend or uninstall faulty-callbacks, or switch it off: "
        "TRAINER_HOOKS_BLOCK_PLUGINS=faulty-callbacks in the environment, "
        "or Trainer(plugins=False)."
    )
    assert probed.error is None
    assert probed.with_status("failed") == [f"faulty-callbacks:{fault}"]


@pytest.mark.slow
def test_faulty_plugins_stop_no_other(probe) -> None:
    """With every fault installed at once, each is warned of, and all that works takes part."""
    probed = probe("faulty", "example", "fleet")
    failed = {name.partition(":")[2] for name in probed.with_status("failed")}
    assert failed == set(FAULTS)
    assert len(probed.warnings) == len(FAULTS)
    assert sorted(probed.callbacks) == [
        "Alpha",
        "Beta",
        "Both",
        "EventLog",
        "Fine",
        "Fine",
        "Fine",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["import-error", "raises", "returns-none"])
def test_a_faulty_plugin_stops_on_request(probe, fault: str) -> None:
    """With `plugin_errors="raise"` the message is an error that has the plugin's own as cause."""
    probed = probe("faulty", plugin_errors="raise", ALLOW_PLUGINS=fault)
    assert probed.error is not None
    assert probed.error.startswith("PluginError: plugin faulty-callbacks 2.3.4 (entry point")
    assert FAULTS[fault] in probed.error
    assert "TRAINER_HOOKS_BLOCK_PLUGINS=faulty-callbacks" in probed.error
    assert probed.cause == FAULTS[fault].partition(":")[0]


@pytest.mark.slow
def test_the_way_out_that_the_warning_names_works(probe) -> None:
    """Blocking the distribution, as the warning says, silences it and imports nothing of it."""
    probed = probe("faulty", "example", BLOCK_PLUGINS="faulty-callbacks")
    assert probed.warnings == []
    assert probed.callbacks == ["EventLog"]


@pytest.mark.slow
def test_a_factory_in_both_groups_is_called_once(probe) -> None:
    """A package that registers under both group names gives one callback, not two."""
    probed = probe("fleet")
    assert probed.callbacks == ["Alpha", "Beta", "Both"]
    assert probed.stdout.split("\n").count("Both made") == 1


@pytest.mark.slow
def test_a_lightning_plugin_waits_to_be_named(probe) -> None:
    """A package for Lightning is listed, not loaded, and loaded when it is asked for."""
    assert probe("fleet").with_status("blocked") == ["acme-bolt:monitor"]
    assert probe("fleet", discover=["acme-bolt"]).callbacks == ["Bolt"]


@pytest.mark.slow
def test_two_distributions_that_clash(probe) -> None:
    """Two packages with one state_key: the first by name takes part, the other is reported."""
    probed = probe("example", "rival")
    assert [record["distribution"] for record in probed.records] == ["a-rival"]
    [message] = probed.warnings
    assert message.startswith("plugin trainer-hooks-monitoring 0.1.0 (entry point 'event-log'")
    assert "clashes with another callback: state_key 'EventLog' belongs to two" in message
    assert "a_rival.factories.EventLog (from plugin a-rival 5.0)" in message


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "callbacks"),
    [
        ({"discover": False}, []),
        ({"discover": []}, []),
        ({"discover": ["event-log"]}, ["EventLog"]),
        ({"discover": ["Trainer_Hooks.Monitoring", "acme-beta"]}, ["Beta", "EventLog"]),
        ({"discover": ["monitor"], "BLOCK_PLUGINS": "acme-bolt"}, ["Alpha", "Beta", "Both"]),
        ({"DISABLE_PLUGINS": "1"}, []),
        ({"DISABLE_PLUGINS": "1", "discover": ["event-log"]}, []),
        ({"DISABLE_PLUGINS": "0", "BLOCK_PLUGINS": "monitor"}, ["EventLog"]),
        ({"ALLOW_PLUGINS": "acme_alpha, event-log"}, ["Alpha", "EventLog"]),
        ({"ALLOW_PLUGINS": "monitor", "BLOCK_PLUGINS": "acme-both"}, ["Alpha", "Beta"]),
        ({"ALLOW_PLUGINS": "monitor", "discover": ["event-log"]}, []),
        ({"ALLOW_PLUGINS": ""}, []),
    ],
    ids=str,
)
def test_who_is_let_in(probe, options: dict, callbacks: list[str]) -> None:
    """The code chooses by distribution or entry point, and the environment only takes away."""
    probed = probe("example", "fleet", **options)
    assert probed.callbacks == callbacks
    assert probed.warnings == []


def test_a_misspelt_name_is_an_error(probe) -> None:
    """A plugin that is asked for and not there is an error with the nearest name."""
    probed = probe("example", discover=["event-lock"])
    assert probed.error is not None
    assert probed.error.startswith("PluginError: plugin 'event-lock' in Trainer(plugins=[...])")
    assert "Did you mean 'event-log'?" in probed.error


@pytest.mark.slow
def test_the_warning_is_shown_by_default(run_with_plugins) -> None:
    """With Python's own filters the warning reaches stderr, at the user's line, every time."""
    code = (
        "from trainer_hooks.connector.connector import CallbackConnector\n"
        "CallbackConnector()\n"
        "CallbackConnector()\n"
    )
    done = run_with_plugins(code, "faulty", TRAINER_HOOKS_ALLOW_PLUGINS="raises")
    assert done.returncode == 0
    for line in (2, 3):
        assert f"<string>:{line}: TrainerHooksWarning: plugin faulty-callbacks" in done.stderr


@pytest.mark.slow
def test_half_an_uninstall_ends_no_run(probe, installed, tmp_path, monkeypatch) -> None:
    """Entry points left behind without metadata or code are reported by their package's name."""
    rest = tmp_path / "half_gone-1.0.dist-info"
    rest.mkdir()
    (rest / "entry_points.txt").write_text("[callbacks_factory]\nghost = half_gone.factories:f\n")
    monkeypatch.setitem(installed, "rest", tmp_path)
    probed = probe("rest", "example")
    assert probed.callbacks == ["EventLog"]
    [message] = probed.warnings
    assert message.startswith("plugin half_gone ? (entry point 'ghost'")
    assert probe("rest", BLOCK_PLUGINS="half-gone").warnings == []
