"""Loggers that an installed package registers: by name in `Trainer(logger=...)` and in a config."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.slow  # packages are built and installed

GROUP = "trainer_hooks.loggers"
LOGGERS = """
    import json
    from pathlib import Path

    from trainer_hooks.loggers import Logger

    class LinesLogger(Logger):
        def __init__(self, save_dir: str, level: int = 1):
            self._save_dir = save_dir
            self.level = level

        @property
        def save_dir(self):
            return self._save_dir

        def log_metrics(self, metrics, step=None):
            path = Path(self._save_dir, "lines.txt")
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a") as file:
                print(json.dumps([step, sorted(metrics)]), file=file)

    class NeedsAddress(Logger):
        def __init__(self, address: str):
            self.address = address

        def log_metrics(self, metrics, step=None):
            pass

    def make():
        return LinesLogger("made")

    def wrong():
        return 3
"""
PACKAGE = (
    "acme-loggers",
    "1.2",
    {"loggers": LOGGERS, "broken": "import a_package_that_is_not_there\n"},
    {
        GROUP: {
            "lines": "loggers:LinesLogger",
            "made": "loggers:make",
            "needs-address": "loggers:NeedsAddress",
            "wrong": "loggers:wrong",
            "broken": "broken:Logger",
        }
    },
)
RIVAL = ("rival-loggers", "0.1", {"loggers": LOGGERS}, {GROUP: {"lines": "loggers:make"}})

ERRORS = """
import json, sys
from trainer_hooks import Trainer
from trainer_hooks.errors import TrainerHooksError

messages = {}
for name in sys.argv[1].split(","):
    try:
        Trainer(accelerator="cpu", plugins=False, logger=name)
    except TrainerHooksError as error:
        messages[name] = f"{type(error).__name__}: {error}"
print(json.dumps(messages))
"""
FIT = """
import torch
from trainer_hooks import Module, Trainer

class Line(Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch, batch_idx):
        loss = self.layer(batch).square().mean()
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

options = dict(accelerator="cpu", max_epochs=1, log_every_n_steps=1, plugins=False,
    enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False)
trainer = Trainer(logger=["lines", "csv", "made"], default_root_dir="runs", **options)
print([type(logger).__name__ for logger in trainer.loggers])
trainer.fit(Line(), [torch.ones(1, 2)] * 2)
"""


@pytest.fixture(scope="module", autouse=True)
def declared(installed):
    """The packages of this file."""
    installed.declare("loggers", PACKAGE)
    installed.declare("rival-loggers", RIVAL)


def test_a_fit_with_loggers_by_name(run_with_plugins, tmp_path, monkeypatch) -> None:
    """Names stand for loggers of a package and of this one, whose `save_dir` is the run's root."""
    monkeypatch.chdir(tmp_path)
    done = run_with_plugins(FIT, "loggers")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "['LinesLogger', 'CSVLogger', 'LinesLogger']"
    for folder in ("runs", "made"):
        lines = (tmp_path / folder / "lines.txt").read_text().splitlines()
        rows = [json.loads(line) for line in lines]
        assert [row for row in rows if "loss" in row[1]] == [
            [0, ["epoch", "loss"]],
            [1, ["epoch", "loss"]],
        ]
    assert list(tmp_path.glob("runs/trainer_logs/version_0/metrics.csv"))


def test_what_a_name_cannot_stand_for(run_with_plugins) -> None:
    """A misspelt name, one of two packages, and a logger that cannot be made are explained."""
    done = run_with_plugins(ERRORS, "loggers", arguments=("liness,needs-address,wrong,broken",))
    assert done.returncode == 0, done.stderr
    messages = json.loads(done.stdout)
    assert messages["liness"].startswith(
        "OptionError: Trainer(logger='liness'): must be True, False"
    )
    assert "Did you mean 'lines'?" in messages["liness"]
    assert "Installed: broken, comet, console, csv," in messages["liness"]
    assert (
        "must be given arguments (missing a required argument: 'address')"
        in messages["needs-address"]
    )
    assert (
        "'wrong' = acme_loggers.loggers:wrong of acme-loggers 1.2 is of type int"
        in messages["wrong"]
    )
    assert messages["broken"].startswith(
        "PluginError: logger 'broken' = acme_loggers.broken:Logger"
    )
    assert "a_package_that_is_not_there" in messages["broken"]
    done = run_with_plugins(ERRORS, "loggers", "rival-loggers", arguments=("lines",))
    message = json.loads(done.stdout)["lines"]
    assert "of acme-loggers 1.2 and by " in message
    assert "of rival-loggers 0.1" in message


CONFIG = """
import json, sys
import torch
from trainer_hooks import Module, TrainerCLI

class Line(Module):
    def __init__(self, size: int = 2):
        super().__init__()
        self.layer = torch.nn.Linear(size, 1)

cli = TrainerCLI(
    Line, save_config_callback=None, run=False,
    args=["--config", sys.argv[1], "--trainer.accelerator=cpu", "--trainer.plugins=false"],
)
print(json.dumps([[type(one).__name__, one.save_dir, one.level] for one in cli.trainer.loggers]))
"""


@pytest.mark.parametrize(
    ("logger", "expected"),
    [
        ("lines", ["LinesLogger", "runs", 1]),
        ("[lines]", ["LinesLogger", "runs", 1]),
        ("{class_path: LinesLogger, init_args: {save_dir: x, level: 3}}", ["LinesLogger", "x", 3]),
    ],
)
def test_a_config_names_a_logger(
    run_with_plugins, tmp_path, monkeypatch, logger: str, expected: list
) -> None:
    """A config takes a registered name, or the short name of the class with its arguments."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.yaml").write_text(f"trainer:\n  default_root_dir: runs\n  logger: {logger}\n")
    done = run_with_plugins(CONFIG, "loggers", arguments=("run.yaml",))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [expected]
