"""WandbLogger, against Weights & Biases in offline mode; its files are read back."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

from trainer_hooks.callbacks import ModelCheckpoint
from trainer_hooks.errors import OptionError
from trainer_hooks.loggers import WandbLogger
from trainer_hooks.loggers.wandb import rows_of_run


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": 3}, "name 3 of WandbLogger: it must be a string"),
        ({"version": 3}, "version 3 of WandbLogger: it must be a string"),
        ({"project": 3}, "project 3 of WandbLogger: it must be a string"),
        ({"prefix": None}, "prefix None of WandbLogger: it must be a string"),
        ({"save_dir": 3}, "save_dir 3 of WandbLogger: it must be a path"),
        ({"log_model": "best"}, "log_model 'best' of WandbLogger: it must be True, False or 'all'"),
        ({"add_file_policy": "x"}, "add_file_policy 'x' of WandbLogger: it must be 'mutable'"),
    ],
)
def test_an_argument_that_breaks_its_rule(arguments, message):
    """A bad argument is refused at construction."""
    with pytest.raises(OptionError, match=message):
        WandbLogger(**arguments)


def test_a_stand_in_counts_as_the_package(monkeypatch):
    """Tests of others put a module of their own into `sys.modules`, which has no spec."""
    monkeypatch.setitem(sys.modules, "wandb", ModuleType("wandb"))
    assert WandbLogger(name="own").name


def test_without_wandb(monkeypatch):
    """Where wandb is not installed, the extra to install is named."""
    monkeypatch.setattr("trainer_hooks.loggers.conversion.find_spec", lambda name: None)
    with pytest.raises(OptionError, match=r"pip install 'trainer-hooks\[wandb\]'"):
        WandbLogger()


def test_who_and_where_is_known_before_the_run(tmp_path, monkeypatch):
    """Project, id and folder are known and nothing is created; a server is never waited for."""
    monkeypatch.setenv("WANDB_PROJECT", "from-env")
    logger = WandbLogger(save_dir="elsewhere", dir=tmp_path, id="abc")
    assert (logger.name, logger.version, logger.save_dir) == ("from-env", "abc", str(tmp_path))
    assert logger.log_dir == str(tmp_path / "from-env/abc")
    assert logger.in_background
    assert not WandbLogger(offline=True).in_background
    assert WandbLogger().version != WandbLogger().version
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def service():
    """The library, silent; its process, which all runs share, ends with the last test."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("WANDB_SILENT", "true")
        import wandb

        yield wandb
        wandb.teardown()


@pytest.fixture
def wandb(service):
    """The library; what runs are open is ended afterwards."""
    yield service
    service.finish()


def rows(folder, logger, key):
    """Return the rows with a metric, once the process that writes them has done so."""
    deadline = time.monotonic() + 60
    while True:
        found = list(rows_of_run(Path(folder, "wandb"), logger.version))
        if any(key in row for row in found) or time.monotonic() > deadline:
            return [row for row in found if key in row]
        time.sleep(0.05)


@pytest.mark.exhaustive
def test_a_training_is_read_back(train, tmp_path, wandb):
    """Metrics stand at their steps, hyperparameters in the config, checkpoints among artifacts."""
    logger = WandbLogger(save_dir=tmp_path, offline=True, prefix="a", log_model=True)
    saver = ModelCheckpoint(tmp_path / "saved", save_top_k=1, monitor="val_loss")
    train(logger, callbacks=[saver], enable_checkpointing=True)
    logger.log_image("map", [torch.zeros(3, 4, 5), torch.ones(4, 5)], 11, captions=["x", "y"])
    logger.log_table("t", ["a", "b"], [[1, "x"], [2, None]], step=11)
    logger.log_text("note", "hello", 11)
    run = logger.experiment
    assert dict(run.config) == {"lr": 0.1, "layers": {"width": 4}}
    files, record = Path(run.dir), run.settings.sync_file
    wandb.finish()
    [note] = rows(tmp_path, logger, "note")  # it was logged last
    found = rows(tmp_path, logger, "a-loss_step")
    assert [row["trainer/global_step"] for row in found] == [1, 3, 5, 7, 9, 11]
    [images] = [row["map"] for row in rows(tmp_path, logger, "map")]
    assert (images["count"], images["captions"]) == (2, ["x", "y"])
    assert all((files / name).is_file() for name in images["filenames"])
    [table] = [row["t"] for row in rows(tmp_path, logger, "t")]
    assert json.loads((files / table["path"]).read_text())["data"] == [[1, "x"], [2, None]]
    assert note["trainer/global_step"] == 11
    assert f"model-{logger.version}".encode() in Path(record).read_bytes()


@pytest.mark.slow
def test_two_loggers_are_two_runs(train, tmp_path, wandb):
    """Two loggers of one trainer write to a run each; one of the user's own is taken up."""
    first, second = (WandbLogger(save_dir=tmp_path, offline=True) for _ in range(2))
    train(first, second)
    first.experiment.finish()
    second.experiment.finish()
    assert first.version != second.version
    for logger in (first, second):
        assert len(rows(tmp_path, logger, "loss_step")) == 6
    own = wandb.init(project="own", dir=tmp_path, mode="offline")
    logger = WandbLogger(save_dir=tmp_path, offline=True)
    logger.log_metrics({"loss": 1.0}, 0)
    assert logger.experiment is own
    assert logger.version == own.id


@pytest.mark.slow
def test_a_thread_of_its_own_writes_the_same(train, tmp_path, wandb):
    """Called from a thread, as it is online, the run has the same rows."""
    logger = WandbLogger(save_dir=tmp_path, offline=True)
    logger.in_background = True
    train(logger)
    wandb.finish()
    steps = [row["trainer/global_step"] for row in rows(tmp_path, logger, "loss_step")]
    assert steps == [1, 3, 5, 7, 9, 11]


@pytest.mark.exhaustive
def test_a_model_is_watched(tmp_path, wandb):
    """watch logs histograms of gradients."""
    logger = WandbLogger(save_dir=tmp_path, offline=True)
    model = torch.nn.Linear(2, 1)
    logger.watch(model, log_freq=1)
    model(torch.ones(1, 2)).sum().backward()
    logger.log_metrics({"loss": 1.0}, 0)
    logger.unwatch(model)
    wandb.finish()
    assert rows(tmp_path, logger, "gradients/weight")


@pytest.mark.slow
def test_a_run_that_is_resumed_in_the_same_process(tmp_path, wandb):
    """What the open run was given after the checkpoint is not given to it again."""
    logger = WandbLogger(save_dir=tmp_path, offline=True)
    logger.log_metrics({"loss": 1.0}, 0)
    state = logger.run_state()
    logger.log_metrics({"loss": 2.0}, 1)
    logger.resume_run(state)
    logger.log_metrics({"loss": 2.0, "late": 0.0}, 1)
    logger.log_metrics({"loss": 3.0}, 2)
    wandb.finish()
    assert rows(tmp_path, logger, "late")
    found = rows(tmp_path, logger, "loss")
    assert [(row["trainer/global_step"], row["loss"]) for row in found] == [(0, 1), (1, 2), (2, 3)]


class _Media:
    """Stands in for wandb and its open run: keeps what it is given."""

    def __init__(self):
        self.logged = []
        self.run = self

    def Image(self, item, **options):
        return ("Image", item, options)

    def Audio(self, item, **options):
        return ("Audio", item, options)

    def Video(self, item, **options):
        return ("Video", item, options)

    def log(self, values):
        self.logged.append(values)

    def use_artifact(self, name):
        return SimpleNamespace(download=lambda root: f"{root}/{name}")


@pytest.fixture
def media(monkeypatch):
    stand_in = _Media()
    monkeypatch.setitem(sys.modules, "wandb", stand_in)
    return stand_in


def test_media_take_lists_of_options(media, tmp_path):
    """Lightning's `log_audio`, `log_video` and `log_image(caption=[...])`."""
    logger = WandbLogger(save_dir=tmp_path, experiment=SimpleNamespace(id="x", log=media.log))
    logger.log_audio("a", ["one.wav"], caption=["first"], sample_rate=[8000])
    logger.log_video("v", ["one.mp4", "two.mp4"], step=3, fps=[4, 5])
    logger.log_image("i", ["one.png"], caption=["x"])
    assert media.logged == [
        {"a": [("Audio", "one.wav", {"caption": "first", "sample_rate": 8000})]},
        {
            "v": [("Video", "one.mp4", {"fps": 4}), ("Video", "two.mp4", {"fps": 5})],
            "trainer/global_step": 3,
        },
        {"i": [("Image", "one.png", {"caption": "x"})]},
    ]


@pytest.mark.parametrize(
    ("items", "options", "words"),
    [
        ("one.wav", {}, "'a' was logged with str: it must be a list"),
        (["one.wav"], {"caption": ["x", "y"]}, "caption of 'a': there are 2 for 1 items"),
    ],
)
def test_media_that_do_not_fit_their_options(media, tmp_path, items, options, words):
    """Nothing is logged."""
    logger = WandbLogger(save_dir=tmp_path, experiment=SimpleNamespace(id="x", log=media.log))
    with pytest.raises(OptionError, match=words):
        logger.log_audio("a", items, **options)
    assert media.logged == []


def test_an_artifact_is_downloaded(media, tmp_path):
    """Through the open run, into the folder."""
    assert WandbLogger.download_artifact("a:v0", save_dir=tmp_path) == f"{tmp_path}/a:v0"


def test_texts_are_logged_as_a_table(media, tmp_path, monkeypatch):
    """`log_text(key, columns=..., data=...)` is Lightning's form."""
    logger = WandbLogger(save_dir=tmp_path, experiment=SimpleNamespace(id="x", log=media.log))
    tables = []
    monkeypatch.setattr(WandbLogger, "_write_table", lambda self, *given: tables.append(given))
    logger.log_text("t", columns=["a", "b"], data=[["1", "2"]])
    logger.log_text("t", "hello", 4)
    assert tables == [("t", ["a", "b"], [["1", "2"]], None), ("t", ["text"], [["hello"]], 4)]
