"""CometLogger, against Comet in offline mode; its archive is read back."""

from __future__ import annotations

import json
import zipfile
from typing import TYPE_CHECKING

import pytest
import torch

from trainer_hooks.errors import OptionError
from trainer_hooks.loggers import CometLogger

if TYPE_CHECKING:
    from pathlib import Path

KEY = "a" * 32


@pytest.fixture
def is_found(monkeypatch):
    """Let comet_ml count as installed."""
    monkeypatch.setattr("trainer_hooks.loggers.conversion.find_spec", lambda name: name)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"project": 3}, "project 3 of CometLogger: it must be a string"),
        ({"experiment_key": 3}, "experiment_key 3 of CometLogger: it must be a string"),
        ({"prefix": 3}, "prefix 3 of CometLogger: it must be a string"),
        ({"mode": "new"}, "mode 'new' of CometLogger: it must be 'get_or_create'"),
    ],
)
def test_an_argument_that_breaks_its_rule(is_found, arguments, message):
    """A bad argument is refused at construction."""
    with pytest.raises(OptionError, match=message):
        CometLogger(**arguments)


def test_without_comet(monkeypatch):
    """Where comet_ml is not installed, the extra to install is named."""
    monkeypatch.setattr("trainer_hooks.loggers.conversion.find_spec", lambda name: None)
    with pytest.raises(OptionError, match=r"pip install 'trainer-hooks\[comet\]'"):
        CometLogger()


def test_who_it_is_is_known_before_the_experiment(is_found, tmp_path):
    """Project, key and folder are known and nothing is begun; a server is never waited for."""
    logger = CometLogger(project="p", experiment_key=KEY, offline_directory=tmp_path)
    assert (logger.name, logger.version, logger.save_dir) == ("p", KEY, str(tmp_path))
    assert (logger.log_dir, logger.in_background) == (None, True)
    assert not CometLogger(online=False).in_background
    assert CometLogger().version != CometLogger().version


def test_a_resume_takes_the_key_of_the_checkpoint(is_found):
    """The experiment of a checkpoint is gone on with, unless the user has chosen another."""
    state = {"project": "p", "key": "b" * 32, "logged": 3}
    logger = CometLogger(project="p")
    logger.resume_run(state)
    assert logger.run_state() == state
    for other in (CometLogger(project="q"), CometLogger(project="p", experiment_key=KEY)):
        before = other.run_state()
        other.resume_run(state)
        assert other.run_state() == before


def messages(folder: Path) -> list[dict]:
    """Return what the one archive in a folder holds."""
    [archive] = folder.glob("*.zip")
    with zipfile.ZipFile(archive) as opened:
        lines = opened.read("messages.json").decode().splitlines()
    return [json.loads(line)["payload"] for line in lines]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_a_training_is_read_back(train, tmp_path, monkeypatch):
    """Metrics stand at their steps, once each, with the hyperparameters, an image and a text."""
    pytest.importorskip("comet_ml")
    folder = tmp_path / "comet"
    folder.mkdir()
    logger = CometLogger(
        project="p",
        experiment_key=KEY,
        online=False,
        prefix="a",
        offline_directory=str(folder),
        log_code=False,
        log_env_details=False,
    )
    trainer = train(logger)
    state = {**logger.run_state(), "logged": 0}
    logger.log_image("map", [torch.zeros(3, 4, 5)], 11, captions=["x"])
    logger.log_table("t", ["a", "b"], [[1, "x"]], step=11)
    logger.log_text("note", "hello", 11)
    logger.resume_run(state)
    logger.log_metrics({"loss_step": 5.0}, 11)  # sent before
    logger.log_metrics({"loss_step": 5.0}, 13)
    assert trainer.logger.experiment.get_key() == logger.version == KEY
    logger.experiment.end()
    found = messages(folder)
    metrics = [one["metric"] for one in found if one.get("metric")]
    steps = [one["step"] for one in metrics if one["metricName"] == "a_loss_step"]
    assert steps == [1, 3, 5, 7, 9, 11, 13]
    params = {one["param"]["paramName"] for one in found if one.get("param")}
    assert {"lr", "layers/width"} <= params
