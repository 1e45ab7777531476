"""Plugins in a real Trainer, in interpreters in which real packages are installed."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.slow  # packages are built, and each run has a process of its own

PRELUDE = """
import contextlib, io, json, logging, os, sys, warnings
import torch
from trainer_hooks import Module, Trainer

class Line(Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, batch_idx):
        inputs, targets = batch
        return ((self.layer(inputs) - targets) ** 2).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

samples = torch.utils.data.TensorDataset(torch.ones(21, 4), torch.ones(21, 1))
loader = torch.utils.data.DataLoader(samples, batch_size=8)
logging.getLogger("trainer_hooks").setLevel("WARNING")  # stderr is for the story
os.environ["TRAINER_HOOKS_EVENT_LOG_PRINT"] = "1"
story = {}

@contextlib.contextmanager
def chapter(name):
    "Keep what is printed, warned of and raised, under that name."
    told = story[name] = {"error": None, "notes": []}
    printed = io.StringIO()
    with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(printed):
        warnings.simplefilter("always")
        try:
            yield told
        except Exception as error:
            told["error"] = f"{type(error).__name__}: {error}"
            told["notes"] = getattr(error, "__notes__", [])
    told["printed"] = printed.getvalue().splitlines()
    told["warned"] = [str(warning.message) for warning in caught]

def train(max_epochs=1, ckpt_path=None, **options):
    trainer = Trainer(
        max_epochs=max_epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **options,
    )
    trainer.fit(Line(), loader, ckpt_path=ckpt_path)
    return trainer

def kinds(trainer):
    return [type(callback).__name__ for callback in trainer.callbacks]
"""

FINE = (
    PRELUDE
    + """
path = sys.argv[1]
with chapter("unmentioned"):
    trainer = train(max_epochs=2)
    trainer.save_checkpoint(path)
saved = torch.load(path, weights_only=True)
story["saved"] = {"state": saved["callbacks"], "plugins": saved["trainer_hooks"]["plugins"]}
with chapter("resumed") as told:
    told["state"] = train(max_epochs=3, ckpt_path=path).callbacks[0].state_dict()
with chapter("resumed without"):
    train(max_epochs=3, ckpt_path=path, plugins=False)
with chapter("off"):
    train(plugins=False)
with chapter("named") as told:
    told["callbacks"] = kinds(train(plugins=["trainer-hooks-monitoring", "acme-bolt"]))
with chapter("misspelt"):
    train(plugins=["event-lok"])
with chapter("replaced") as told:
    from trainer_hooks_monitoring import EventLog
    mine = EventLog()
    told["is_mine"] = train(callbacks=[mine], plugins=["event-log"]).callbacks == [mine]
with chapter("quiet"):
    del os.environ["TRAINER_HOOKS_EVENT_LOG_PRINT"]
    train()
with chapter("environment") as told:
    os.environ["TRAINER_HOOKS_DISABLE_PLUGINS"] = "1"
    told["callbacks"] = kinds(train())
sys.stderr.write(json.dumps(story))
"""
)

BROKEN = (
    PRELUDE
    + """
with chapter("faulty") as told:
    os.environ["TRAINER_HOOKS_BLOCK_PLUGINS"] = "failing-callbacks"
    told["callbacks"] = kinds(train())
with chapter("raise"):
    train(plugin_errors="raise")
with chapter("failing"):
    os.environ["TRAINER_HOOKS_BLOCK_PLUGINS"] = "faulty-callbacks"
    train()
with chapter("tolerated") as told:
    trainer = Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )
    told["before"] = kinds(trainer)
    for callback in trainer.callbacks:
        callback.on_error = "disable"
    trainer.fit(Line(), loader)
    told["after"] = kinds(trainer)
    told["batches"] = trainer.progress.batches_completed
sys.stderr.write(json.dumps(story))
"""
)


def told(run_with_plugins, code: str, *groups: str, arguments: tuple[str, ...] = ()) -> dict:
    """Run a script that ends with its story on stderr."""
    done = run_with_plugins(code, *groups, arguments=arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stderr)


@pytest.fixture(scope="module")
def fine(run_with_plugins, tmp_path_factory: pytest.TempPathFactory) -> dict:
    """What came of runs with plugins that work."""
    path = tmp_path_factory.mktemp("checkpoints") / "run.ckpt"
    return told(run_with_plugins, FINE, "example", "fleet", arguments=(str(path),))


@pytest.fixture(scope="module")
def broken(run_with_plugins) -> dict:
    """What came of runs with plugins that do not."""
    return told(run_with_plugins, BROKEN, "example", "faulty", "failing")


def lines(chapter: dict) -> list[str]:
    return [line for line in chapter["printed"] if line.startswith("[event-log]")]


def test_an_installed_plugin_works_in_every_trainer(fine: dict) -> None:
    """Nobody mentions it, and its hooks are called: each epoch and the end leave their line."""
    assert lines(fine["unmentioned"]) == [
        "[event-log] epoch 0 done: 3 batches, 21 samples so far (resumed 0x)",
        "[event-log] epoch 1 done: 6 batches, 42 samples so far (resumed 0x)",
        "[event-log] fit 1 done: 6 batches, 42 samples so far (resumed 0x)",
    ]
    assert fine["unmentioned"]["warned"] == []


def test_its_state_and_its_origin_are_in_the_checkpoint(fine: dict) -> None:
    """The checkpoint holds the plugin's state under its key, and which package it came from."""
    assert fine["saved"]["state"]["EventLog"] == {
        "batches": 6,
        "samples": 42,
        "epochs": 2,
        "fits": 1,
        "resumes": 0,
    }
    assert {
        "distribution": "trainer-hooks-monitoring",
        "version": "0.1.0",
        "entry_point": "event-log",
        "class": "EventLog",
        "state_key": "EventLog",
    } in fine["saved"]["plugins"]


def test_its_state_goes_on_with_a_resume(fine: dict) -> None:
    """A new Trainer's new journal takes the counts back and goes on from there."""
    assert lines(fine["resumed"]) == [
        "[event-log] epoch 2 done: 9 batches, 63 samples so far (resumed 1x)",
        "[event-log] fit 2 done: 9 batches, 63 samples so far (resumed 1x)",
    ]
    assert fine["resumed"]["warned"] == []


def test_a_resume_says_which_plugins_are_missing(fine: dict) -> None:
    """One warning names the state that nobody takes and the package that supplied it."""
    [message] = fine["resumed without"]["warned"]
    assert "'EventLog'" in message
    assert "plugin trainer-hooks-monitoring 0.1.0 does not take part now" in message
    assert lines(fine["resumed without"]) == []


def test_plugins_false_is_none(fine: dict) -> None:
    """`Trainer(plugins=False)` runs without any plugin, silently."""
    assert (fine["off"]["printed"], fine["off"]["warned"]) == ([], [])
    assert fine["off"]["error"] is None


def test_plugins_by_name_are_those(fine: dict) -> None:
    """A list of names lets in those alone, a Lightning plugin among them."""
    assert fine["named"]["callbacks"] == ["Bolt", "EventLog"]


def test_a_misspelt_plugin_is_an_error_at_construction(fine: dict) -> None:
    """A name that is not installed ends `Trainer(...)` with the nearest that is."""
    assert fine["misspelt"]["error"].startswith("PluginError: plugin 'event-lok'")
    assert "Did you mean 'event-log'?" in fine["misspelt"]["error"]


def test_the_users_own_replaces_the_plugins(fine: dict) -> None:
    """A EventLog in `callbacks=` takes the place of the plugin's, with its own settings."""
    assert fine["replaced"]["is_mine"]
    assert lines(fine["replaced"]) == []
    assert fine["replaced"]["error"] is None


def test_the_example_is_silent_unless_asked_to_print(fine: dict) -> None:
    """`TRAINER_HOOKS_EVENT_LOG_PRINT`, unset between two trainers, counts for the second."""
    assert lines(fine["quiet"]) == []
    assert fine["quiet"]["error"] is None


def test_the_environment_switches_plugins_off(fine: dict) -> None:
    """`TRAINER_HOOKS_DISABLE_PLUGINS=1` has the effect of `plugins=False` on any script."""
    assert fine["environment"]["callbacks"] == []


def test_a_faulty_plugin_does_not_stop_a_run(broken: dict) -> None:
    """Seven faults give seven warnings, and the run trains with the plugins that work."""
    assert broken["faulty"]["error"] is None
    assert len(broken["faulty"]["warned"]) == 7
    assert all("plugin faulty-callbacks 2.3.4" in message for message in broken["faulty"]["warned"])
    assert broken["faulty"]["callbacks"] == ["Fine", "Fine", "Fine", "EventLog"]
    assert len(lines(broken["faulty"])) == 2


def test_a_faulty_plugin_stops_construction_on_request(broken: dict) -> None:
    """`Trainer(plugin_errors="raise")` ends with the first fault."""
    assert broken["raise"]["error"].startswith("PluginError: plugin faulty-callbacks 2.3.4")
    assert broken["raise"]["printed"] == []


def test_an_error_in_a_plugins_hook_names_the_plugin(broken: dict) -> None:
    """The error keeps its type, and its note has hook, state_key, distribution and version."""
    assert broken["failing"]["error"] == "ZeroDivisionError: the plugin's own fault"
    assert (
        "raised in hook 'on_train_batch_end' of callback Failing (state_key 'Failing', "
        "from plugin failing-callbacks 6.1)"
    ) in broken["failing"]["notes"]


def test_the_user_may_tolerate_a_plugin(broken: dict) -> None:
    """With `on_error = "disable"` the run goes on without it, reported once with a traceback."""
    assert broken["tolerated"]["error"] is None
    assert broken["tolerated"]["before"] == ["Failing", "EventLog"]
    assert broken["tolerated"]["after"] == ["EventLog"]
    assert broken["tolerated"]["batches"] == 3
    [message] = broken["tolerated"]["warned"]
    assert "callback Failing (state_key 'Failing', from plugin failing-callbacks 6.1)" in message
    assert "ZeroDivisionError: the plugin's own fault" in message
