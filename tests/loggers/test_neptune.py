"""NeptuneLogger, against Neptune in offline mode; its files are read back."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
import torch

from trainer_hooks.callbacks import ModelCheckpoint
from trainer_hooks.errors import OptionError
from trainer_hooks.loggers import NeptuneLogger


@pytest.fixture
def is_found(monkeypatch):
    """Let neptune count as installed."""
    monkeypatch.setattr("trainer_hooks.loggers.conversion.find_spec", lambda name: name)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"project": 3}, "project 3 of NeptuneLogger: it must be a string"),
        ({"name": 3}, "name 3 of NeptuneLogger: it must be a string"),
        ({"prefix": None}, "prefix None of NeptuneLogger: it must be a string"),
        ({"run": object(), "name": "x"}, "run of NeptuneLogger: it was begun already"),
    ],
)
def test_an_argument_that_breaks_its_rule(is_found, arguments, message):
    """A bad argument is refused at construction."""
    with pytest.raises(OptionError, match=message):
        NeptuneLogger(**arguments)


def test_without_neptune(monkeypatch):
    """Where neptune is not installed, the extra to install is named."""
    monkeypatch.setattr("trainer_hooks.loggers.conversion.find_spec", lambda name: None)
    with pytest.raises(OptionError, match=r"pip install 'trainer-hooks\[neptune\]'"):
        NeptuneLogger()


def test_who_it_is_is_known_before_the_run(is_found):
    """Name and id are known and nothing is begun; a server is never waited for."""
    logger = NeptuneLogger(project="w/p", name="n", custom_run_id="mine")
    assert (logger.name, logger.version, logger.log_dir) == ("n", "mine", None)
    assert logger.in_background
    assert not NeptuneLogger(mode="offline").in_background
    assert NeptuneLogger().version != NeptuneLogger().version


def test_a_resume_takes_the_id_of_the_checkpoint(is_found):
    """The run of a checkpoint is gone on with, unless the user has chosen another."""
    state = {"project": "w/p", "id": "before", "logged": 3}
    logger = NeptuneLogger(project="w/p")
    logger.resume_run(state)
    assert logger.run_state() == {**state, "is_accepted": {}}
    for other in (NeptuneLogger(), NeptuneLogger(project="w/p", custom_run_id="mine")):
        before = other.run_state()
        other.resume_run(state)
        assert other.run_state() == before


def operations(folder: Path) -> list[dict]:
    """Return what the one run in a folder was told to do."""
    [file] = folder.glob(".neptune/offline/*/data-1.log")
    decoder, text, found = json.JSONDecoder(), file.read_text(), []
    while text.strip():
        one, end = decoder.raw_decode(text.lstrip())
        found.append(one["obj"])
        text = text.lstrip()[end:]
    return found


class Series:
    """A stand-in for Neptune's run, which keeps the paths of what it is sent."""

    def __init__(self) -> None:
        self.sent = []

    def __getitem__(self, path):
        self.path = path
        return self

    def append(self, value, step):
        self.sent.append(self.path)


def test_a_resumed_run_leaves_out_the_same_metrics(is_found):
    """A name that was left out stays so, whichever comes first after the resume."""
    first, run = NeptuneLogger(project="w/p"), Series()
    first._experiment = Series()
    first.log_metrics({"val/loss": 1.0, "val": 2.0}, 0)
    resumed = NeptuneLogger(project="w/p")
    resumed.resume_run(first.run_state())
    resumed._experiment = run
    resumed.log_metrics({"val": 2.0, "val/loss": 1.0}, 1)
    assert run.sent == ["training/val/loss"]


def test_another_run_accepts_names_anew(is_found):
    """Names that another run has left out are no rivals in the run of a checkpoint."""
    logger = NeptuneLogger(project="w/p")
    logger._experiment = Series()
    logger.log_metrics({"val/loss": 1.0, "val": 2.0}, 0)
    # as an older version saved it
    logger.resume_run({"project": "w/p", "id": "another", "logged": 3})
    logger._experiment = run = Series()
    logger.log_metrics({"val": 2.0, "val/loss": 1.0}, 0)
    assert run.sent == ["training/val"]


def test_two_names_of_one_path_are_not_mixed(is_found, caplog):
    """Neptune leaves out empty folders, so that two names may lead to one series."""
    caplog.set_level(logging.WARNING, logger="trainer_hooks")
    logger = NeptuneLogger()
    logger._experiment = run = Series()
    logger.log_metrics({"val/loss": 1.0, "val//loss": 2.0}, 0)
    assert run.sent == ["training/val/loss"]
    assert "leaves out the metric 'val//loss'" in caplog.text


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize("names", [("val", "val/loss"), ("val/loss", "val")])
def test_a_metric_without_a_place_loses_no_other(names, tmp_path, monkeypatch, caplog):
    """Of a metric and a folder of that name the later one is left out, and the rest is logged."""
    pytest.importorskip("neptune")
    monkeypatch.chdir(tmp_path)
    caplog.set_level(logging.WARNING, logger="trainer_hooks")
    quiet = {f"capture_{what}": False for what in ("stdout", "stderr", "hardware_metrics")}
    logger = NeptuneLogger(mode="offline", git_ref=False, source_files=[], **quiet)
    for step in range(2):
        logger.log_metrics({names[0]: 1.0, names[1]: 2.0, "": 3.0, "精度": 4.0}, step)
    logger.experiment.stop()
    logged = ["/".join(one["path"]) for one in operations(tmp_path) if "training" in one["path"]]
    assert logged == [f"training/{name}" for name in (names[0], "精度")] * 2
    # once for a name
    assert caplog.text.count(f"leaves out the metric {names[1]!r}") == 1
    assert caplog.text.count("leaves out the metric ''") == 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_a_training_is_read_back(train, tmp_path, monkeypatch):
    """Metrics stand at their steps, once each, with hyperparameters and the checkpoint."""
    pytest.importorskip("neptune")
    monkeypatch.chdir(tmp_path)
    quiet = {f"capture_{what}": False for what in ("stdout", "stderr", "hardware_metrics")}
    logger = NeptuneLogger(
        project="w/p", mode="offline", prefix="a", git_ref=False, source_files=[], **quiet
    )
    saver = ModelCheckpoint(tmp_path / "saved", save_top_k=1, monitor="val_loss")
    train(logger, callbacks=[saver], enable_checkpointing=True)
    state = {**logger.run_state(), "logged": 0}
    logger.log_image("map", [torch.zeros(3, 4, 5)], 11, captions=["x"])
    logger.log_table("t", ["a", "b"], [[1, "x"]], step=11)
    logger.log_text("note", "hello", 11)
    logger.resume_run(state)
    logger.log_metrics({"loss_step": 5.0}, 11)  # sent before
    logger.log_metrics({"loss_step": 5.0}, 13)
    assert logger.run is logger.experiment
    logger.experiment.stop()
    found = operations(tmp_path)
    losses = [one for one in found if one["path"] == ["a", "loss_step"]]
    steps = [value["step"] for one in losses for value in one["values"]]
    assert steps == [1, 3, 5, 7, 9, 11, 13]
    paths = {"/".join(one["path"]) for one in found}
    name = Path(saver.best_model_path).stem
    wanted = {"lr", "layers/width"}
    assert {f"a/hyperparams/{one}" for one in wanted} <= paths
    assert {f"a/model/checkpoints/{name}", "a/map/0", "a/t/step-11", "a/note"} <= paths
