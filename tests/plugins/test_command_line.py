"""`trainer-hooks plugins list` and `check`, where real packages are installed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import subprocess

pytestmark = pytest.mark.slow  # packages are built, and each command has a process of its own

OURS = "trainer_hooks.callbacks_factory"
MAIN = "import sys\nfrom trainer_hooks.cli.main import main\nsys.exit(main(sys.argv[1:]))\n"
NO_TORCH = "import sys\nsys.modules['torch'] = None\n" + MAIN.removeprefix("import sys\n")
LOUD = """
    import os
    import warnings
    from trainer_hooks.callback import Callback

    print("printed by the import")
    os.system("echo printed by a program")

    class Loud(Callback):
        def on_train_bach_end(self):
            pass

        def run_event(self, event, *args):
            pass

    class Quiet(Callback):
        def __init__(self):
            self.seen = 0

        def on_fit_start(self, trainer, module):
            if trainer.progress.is_new_training:
                self.seen = 0

        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            self.seen += 1

        def state_dict(self):
            return {"seen": self.seen}

        def load_state_dict(self, state_dict):
            self.seen = state_dict["seen"]

    class Restless(Quiet):
        @property
        def state_key(self):
            return f"Restless-{id(self)}"

    class Ending(Callback):
        def on_fit_start(self, trainer, module):
            raise SystemExit("enough")

    def loud():
        print("printed by the factory")
        warnings.warn("old and deprecated", UserWarning)
        return Loud()

    def two():
        return [Quiet(), Loud()]

    def none():
        return []
"""
ENTRY_POINTS = {
    "loud": "factories:loud",
    "two": "factories:two",
    "quiet": "factories:Quiet",
    "restless": "factories:Restless",
    "ending": "factories:Ending",
    "none": "factories:none",
}


@pytest.fixture(scope="module")
def command(installed, run_with_plugins, examples_not_asked_for):
    """Run the command line where groups of packages are installed; other examples are blocked."""
    installed.declare("mixed", ("acme-mixed", "7.0", {"factories": LOUD}, {OURS: ENTRY_POINTS}))

    def run(*groups: str, arguments: str, code: str = MAIN, **environ: str):
        others = examples_not_asked_for(groups)
        environ["BLOCK_PLUGINS"] = ",".join([environ.get("BLOCK_PLUGINS", ""), *others])
        variables = {f"TRAINER_HOOKS_{name}": value for name, value in environ.items()}
        words = tuple(f"plugins {arguments}".split())
        return run_with_plugins(code, *groups, arguments=words, **variables)

    return run


def listed(done: subprocess.CompletedProcess[str]) -> dict[str, dict]:
    assert done.returncode == 0, done.stdout + done.stderr
    return {
        f"{record['distribution']}:{record['entry_point']}": record
        for record in json.loads(done.stdout)
    }


def test_a_loaded_plugin_is_listed_with_all_about_it(command) -> None:
    """The example: whose it is, what it supplies, to what that listens, how long it took."""
    record = listed(command("example", arguments="list --json"))[
        "trainer-hooks-monitoring:event-log"
    ]
    assert 0 < record.pop("seconds") < 60
    assert record == {
        "distribution": "trainer-hooks-monitoring",
        "version": "0.1.0",
        "entry_point": "event-log",
        "group": OURS,
        "value": "trainer_hooks_monitoring.factories:make_event_log",
        "status": "loaded",
        "reason": "",
        "callbacks": [
            {
                "class": "EventLog",
                "state_key": "EventLog",
                "is_stateful": True,
                "listens_to": [
                    "on_fit_start",
                    "on_train_batch_end",
                    "on_train_epoch_end",
                    "on_fit_end",
                    "on_checkpoint_saved",
                    "on_log",
                    "on_exception",
                ],
            }
        ],
        "adds_hooks": {},
        "warnings": [],
    }


def test_what_does_not_take_part_is_listed_with_the_reason(command) -> None:
    """Failed, blocked and waiting ones are listed too, and the exit code is 0."""
    records = listed(command("faulty", "fleet", arguments="list --json", BLOCK_PLUGINS="acme-beta"))
    failed = records["faulty-callbacks:raises"]
    assert failed["status"] == "failed"
    assert failed["reason"].startswith("LookupError: no licence key in the vault (")
    assert failed["reason"].endswith("factories.py, line 14)")  # where the plugin raised it
    assert failed["warnings"] == []
    blocked = records["acme-beta:monitor"]
    assert (blocked["status"], blocked["callbacks"]) == ("blocked", [])
    assert "TRAINER_HOOKS_BLOCK_PLUGINS" in blocked["reason"]
    assert "a Lightning plugin: name it" in records["acme-bolt:monitor"]["reason"]
    assert records["acme-alpha:monitor"]["status"] == "loaded"


def test_all_are_listed_as_blocked_where_the_environment_says_so(command) -> None:
    """With `TRAINER_HOOKS_DISABLE_PLUGINS=1` nothing is loaded, and it is said why."""
    records = listed(command("fleet", arguments="list --json", DISABLE_PLUGINS="1"))
    assert {record["status"] for record in records.values()} == {"blocked"}
    assert "TRAINER_HOOKS_DISABLE_PLUGINS is set" in records["acme-alpha:monitor"]["reason"]


def test_what_plugins_print_and_warn_of_stays_out_of_the_json(command) -> None:
    """Prints of a plugin, and of a program that it starts, go to stderr, warnings to its record."""
    done = command("mixed", arguments="list --json")
    records = listed(done)
    for who in ("import", "factory"):
        assert f"printed by the {who}\n" in done.stderr
    assert "printed by a program\n" in done.stderr
    assert "deprecated" not in done.stderr
    own, misspelt = records["acme-mixed:loud"]["warnings"]
    assert own == "old and deprecated"
    assert "'on_train_bach_end' is no hook" in misspelt
    assert records["acme-mixed:quiet"]["warnings"] == []


def test_a_callback_that_receives_every_event_is_listed_so(command) -> None:
    """One that overrides `run_event` listens to all hooks."""
    records = listed(command("mixed", arguments="list --json"))
    [loud] = records["acme-mixed:loud"]["callbacks"]
    assert (loud["listens_to"], loud["is_stateful"]) == (["run_event"], False)


def test_the_table_is_for_people(command) -> None:
    """A line for each plugin, all about it below, and nothing of what plugins print."""
    done = command("mixed", "faulty", "example", arguments="list", BLOCK_PLUGINS="quiet")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    head = ["distribution", "version", "entry", "point", "status", "ms", "supplies"]
    assert lines[0].split() == head
    rows = [line.split() for line in lines]
    assert ["acme-mixed", "7.0", "quiet", "blocked", "-", "-"] in rows
    assert any(row[:4] == ["acme-mixed", "7.0", "two", "loaded"] for row in rows)
    assert any(row[-2:] == ["Quiet,", "Loud"] for row in rows)
    assert any(
        line.startswith("    failed: LookupError: no licence key in the vault (") for line in lines
    )
    assert "    blocked: by the environment variable TRAINER_HOOKS_BLOCK_PLUGINS" in lines
    assert "    callback EventLog, state_key 'EventLog'" in lines
    assert "    callback Loud, state_key 'Loud', no state" in lines
    assert "      listens to run_event" in lines
    assert "    warning: old and deprecated" in lines
    assert "printed by" not in done.stdout


def test_listing_does_not_wait_for_torch(command) -> None:
    """With torch out of reach plugins are listed all the same, as long as none needs it."""
    done = command("fleet", arguments="list --json", code=NO_TORCH)
    assert listed(done)["acme-alpha:monitor"]["status"] == "loaded"


def test_a_plugin_that_keeps_the_contract_passes(command) -> None:
    """The test kit trains with the example's callback and finds nothing: exit code 0."""
    done = command("example", arguments="check trainer-hooks-monitoring --json")
    assert done.returncode == 0, done.stdout + done.stderr
    log, exporter = json.loads(done.stdout)
    assert (log["entry_point"], log["outcome"]) == ("event-log", "passed")
    assert {result["callback"] for result in log["results"]} == {"EventLog"}
    assert (exporter["entry_point"], exporter["outcome"]) == ("prometheus", "not checked")


@pytest.mark.exhaustive
def test_both_example_packages_are_listed_and_pass_when_switched_on(command) -> None:
    """Built as wheels and installed, what the environment asks of them takes part and passes."""
    asked = {"PROMETHEUS_PORT": "0", "IMAGES_EVERY_N_STEPS": "2"}
    records = listed(command("example", "vision", arguments="list --json", **asked))
    supplied = {name: [c["class"] for c in r["callbacks"]] for name, r in records.items()}
    assert supplied == {
        "trainer-hooks-monitoring:event-log": ["EventLog"],
        "trainer-hooks-monitoring:prometheus": ["PrometheusExporter"],
        "trainer-hooks-vision:images": ["ImageLogger"],
    }
    outcomes = {}
    for entry_point in ("event-log", "prometheus", "images"):  # the kit takes its time for each
        done = command("example", "vision", arguments=f"check {entry_point} --json", **asked)
        assert done.returncode == 0, done.stdout + done.stderr
        outcomes |= {r["entry_point"]: r["outcome"] for r in json.loads(done.stdout)}
    assert outcomes == {"event-log": "passed", "prometheus": "passed", "images": "passed"}


def test_the_example_packages_are_off_and_say_what_is_wrong_with_a_variable(command) -> None:
    """Without variables only the event log takes part; a wrong one is named and harms no other."""
    records = listed(command("example", "vision", arguments="list --json"))
    counts = {name.partition(":")[2]: len(r["callbacks"]) for name, r in records.items()}
    assert counts == {"event-log": 1, "prometheus": 0, "images": 0}
    wrong = {"PROMETHEUS_PORT": "http", "IMAGES_EVERY_N_STEPS": "often"}
    records = listed(command("example", "vision", arguments="list --json", **wrong))
    assert records["trainer-hooks-monitoring:event-log"]["status"] == "loaded"
    for name, variable in {
        "monitoring:prometheus": "PROMETHEUS_PORT='http'",
        "vision:images": "IMAGES_EVERY_N_STEPS='often'",
    }.items():
        record = records[f"trainer-hooks-{name}"]
        assert record["status"] == "failed"
        assert f"TRAINER_HOOKS_{variable} in the environment: it must be" in record["reason"]


@pytest.mark.exhaustive  # the kit trains with four callbacks
def test_defects_are_told_by_plugin_and_check(command) -> None:
    """A key that changes, a misspelt hook among two callbacks, an end of the process: code 1."""
    done = command("mixed", arguments="check acme-mixed --json")
    assert done.returncode == 1, done.stdout + done.stderr
    records = {record["entry_point"]: record for record in json.loads(done.stdout)}
    outcomes = {name: record["outcome"] for name, record in records.items()}
    assert outcomes == {
        "ending": "failed",
        "loud": "failed",
        "none": "not checked",
        "quiet": "passed",
        "restless": "failed",
        "two": "failed",
    }
    failed = {r["name"]: r for r in records["restless"]["results"] if r["outcome"] == "failed"}
    assert "Restless-" in failed["state_key"]["details"]
    failed = {r["callback"] for r in records["two"]["results"] if r["outcome"] == "failed"}
    assert failed == {"Loud"}


def test_a_plugin_that_cannot_be_loaded_is_a_defect(command) -> None:
    """It is named with its cause, for people, and the exit code is 1."""
    done = command("faulty", arguments="check raises")
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert lines[0].startswith("plugin faulty-callbacks 2.3.4 (entry point 'raises' = faulty_")
    assert lines[0].endswith("): failed")
    assert lines[1].startswith("  LookupError: no licence key in the vault (")
    assert lines[-1] == "1 failed"


def test_an_unknown_check_to_skip_is_refused(command) -> None:
    """`--skip` with a name that no check has is a fault of the call: exit code 2, and the names."""
    done = command("example", arguments="check --skip resume")
    assert done.returncode == 2
    assert "'resume'" in done.stderr
    assert "Did you mean 'resumes'?" in done.stderr


def test_everywhere_adds_the_checks_in_other_trainers(command) -> None:
    """With `--everywhere` their names are known, as those of checks that may be left out."""
    done = command("example", arguments="check --everywhere --skip in_lightnin")
    assert done.returncode == 2
    assert "Did you mean 'in_lightning'?" in done.stderr


def test_an_unknown_plugin_is_refused_with_the_nearest(command) -> None:
    """A misspelt name checks nothing: exit code 2, nothing on stdout."""
    done = command("fleet", arguments="check acme-alpa")
    assert (done.returncode, done.stdout) == (2, "")
    assert "plugin 'acme-alpa' is not installed" in done.stderr
    assert "Did you mean 'acme-alpha'?" in done.stderr


def test_a_blocked_plugin_that_is_asked_for_is_not_passed(command) -> None:
    """What the environment switches off cannot be checked: said, with exit code 2."""
    done = command("fleet", arguments="check acme-alpha", BLOCK_PLUGINS="acme-alpha")
    assert done.returncode == 2
    assert "not checked" in done.stdout
    assert "TRAINER_HOOKS_BLOCK_PLUGINS" in done.stdout


def test_nothing_installed_is_nothing_to_check(command) -> None:
    """Without plugins, or with none that takes part, checking all of them passes."""
    done = command(arguments="check", DISABLE_PLUGINS="1")
    assert done.returncode == 0, done.stdout + done.stderr


OWN = """
import torch
from trainer_hooks import Module

class Own(Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch, batch_idx):
        return self.layer(batch).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

    def train_dataloader(self):
        return [torch.ones(1, 1)] * 3
"""


def test_a_config_names_a_plugins_callback_by_its_short_name(run_with_plugins, tmp_path) -> None:
    """What an installed wheel supplies is named in a word, and trains."""
    (tmp_path / "own.py").write_text(OWN)
    at_home = "import os, sys\nos.chdir(sys.argv.pop(1))\n" + MAIN
    words = (
        "fit", "--model=own.Own", "--trainer.max_epochs=1", "--trainer.accelerator=cpu",
        "--trainer.callbacks+=EventLog", "--trainer.callbacks.prints=true",
    )  # fmt: skip
    done = run_with_plugins(at_home, "example", arguments=(str(tmp_path), *words))
    assert done.returncode == 0, done.stderr
    assert "[event-log] fit 1 done: 3 batches" in done.stdout
    config = (tmp_path / "trainer_logs" / "version_0" / "config.yaml").read_text()
    assert "class_path: trainer_hooks_monitoring.EventLog" in config
