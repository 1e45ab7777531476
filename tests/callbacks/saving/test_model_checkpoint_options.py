from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from trainer_hooks import Time, Trainer
from trainer_hooks.callbacks import Checkpoint, ModelCheckpoint
from trainer_hooks.errors import MetricError, TrainerHooksWarning
from trainer_hooks.hooks.band import Band


def test_good_options_are_kept(tmp_path):
    """The constructor's arguments are readable under their names, dirpath as an absolute path."""
    saver = ModelCheckpoint(tmp_path / "a" / ".." / "b", "{epoch}", "loss", save_last="link")
    assert saver.dirpath == str(tmp_path / "b")
    assert (saver.filename, saver.monitor, saver.save_last) == ("{epoch}", "loss", "link")
    assert (saver.save_top_k, saver.mode, saver.save_weights_only) == (1, "min", False)


def test_band_is_save():
    """A checkpoint callback takes its turn last."""
    assert isinstance(ModelCheckpoint(), Checkpoint)
    assert ModelCheckpoint().band is Band.SAVE


def test_state_key_is_as_in_lightning():
    """The state_key holds the monitor and the resolved triggers, and nothing that may change."""
    assert ModelCheckpoint().state_key == (
        "ModelCheckpoint{'monitor': None, 'mode': 'min', 'every_n_train_steps': 0, "
        "'every_n_epochs': 1, 'train_time_interval': None}"
    )
    timed = ModelCheckpoint(train_time_interval=timedelta(minutes=1)).state_key
    for same in ("1m", "60sec", Time("1m")):
        assert ModelCheckpoint(train_time_interval=same).state_key == timed
    assert timed.endswith(
        "'every_n_epochs': 0, 'train_time_interval': datetime.timedelta(seconds=60)}"
    )
    assert (
        ModelCheckpoint("a", save_top_k=1).state_key
        == ModelCheckpoint("b", save_top_k=-1).state_key
    )


@pytest.mark.parametrize(
    ("attributes", "folder"),
    [
        ({"save_dir": "sd", "name": "my", "version": 7}, "sd/my/version_7"),
        ({"save_dir": "sd", "name": "my", "version": "7"}, "sd/my/7"),
        ({"save_dir": "sd", "name": "", "version": 0}, "sd/version_0"),
        ({"name": "my", "version": 0}, "my/version_0"),
        ({"save_dir": "sd", "name": "my"}, "sd"),
        ({"save_dir": "sd", "name": "my", "version": 7, "log_dir": "own"}, "own"),
        ({"save_dir": "sd", "name": "my", "version": 7, "log_dir": None}, ""),
        ({}, ""),
    ],
)
def test_default_folder_is_the_loggers(attributes, folder, fake, tmp_path, MemoryLogger):
    """Without dirpath, files go to save_dir/name/version, or to the folder that is the logger's."""
    paths = {
        name: str(tmp_path / value)
        for name, value in attributes.items()
        if name.endswith("_dir") and value is not None
    }
    logger = type("Own", (MemoryLogger,), {**attributes, **paths})()
    assert logger.root_dir is None
    saver = ModelCheckpoint()
    fake(saver, logger=logger).fire("setup", "fit")
    assert saver.dirpath == str(tmp_path / folder / "checkpoints")


def test_default_folder_without_a_logger(fake, tmp_path):
    """Files go to the root."""
    saver = ModelCheckpoint()
    fake(saver).fire("setup", "fit")
    assert saver.dirpath == str(tmp_path / "checkpoints")


@pytest.mark.parametrize(
    ("template", "metrics", "expected"),
    [
        (None, {"epoch": 3, "step": 12}, "epoch=3-step=12.ckpt"),
        (None, {}, "epoch=0-step=0.ckpt"),
        ("{epoch:03d}-{acc:.2f}", {"epoch": 3, "acc": 0.035}, "epoch=003-acc=0.04.ckpt"),
        ("{val.loss:.1f}", {"val.loss": 0.5}, "val.loss=0.5.ckpt"),
        ("x-{val/loss:.1f}", {"val/loss": 0.5}, "x-val/loss=0.5.ckpt"),
        ("{ab}-{a}", {"a": 1, "ab": 2}, "ab=2-a=1.ckpt"),
        ("{n:d}", {"n": 3.0}, "n=3.ckpt"),
        ("{acc}", {"acc": 1.0}, "acc=1.0.ckpt"),
        ("{n:03d}", {"n": float("nan")}, "n=nan.ckpt"),
        ("{loss:.2f}", {}, "loss=nan.ckpt"),
        ("best", {}, "best.ckpt"),
    ],
)
def test_format_checkpoint_name(template, metrics, expected):
    """Fields are filled from the metrics, with their names before them."""
    assert ModelCheckpoint(filename=template).format_checkpoint_name(metrics) == expected


def test_format_checkpoint_name_variants(tmp_path):
    """Names can be left out, versions follow, another template can be given, characters change."""

    class Spelt(ModelCheckpoint):
        CHECKPOINT_EQUALS_CHAR = ":"
        CHECKPOINT_JOIN_CHAR = "_"
        FILE_EXTENSION = ".pt"

    metrics = {"epoch": 1, "step": 2}
    bare = ModelCheckpoint(filename="{epoch}-{step}", auto_insert_metric_name=False)
    assert bare.format_checkpoint_name(metrics, ver=2) == "1-2-v2.ckpt"
    assert bare.format_checkpoint_name(metrics, "{step}") == "2.ckpt"
    assert Spelt(tmp_path).format_checkpoint_name(metrics, ver=1) == str(
        tmp_path / "epoch:1_step:2_v1.pt"
    )


def test_value_that_does_not_go_with_its_format():
    """A broken number for an integer format is an error that names the metric and the format."""
    saver = ModelCheckpoint(filename="{acc:d}")
    with pytest.raises(MetricError, match=r"value 0\.5 of metric 'acc' .*format 'd'"):
        saver.format_checkpoint_name({"acc": 0.5})


def test_relative_dirpath_is_resolved_at_once(tmp_path, monkeypatch):
    """A later change of the working directory does not move the folder."""
    monkeypatch.chdir(tmp_path)
    assert ModelCheckpoint("ckpts").dirpath == str(Path(tmp_path, "ckpts").resolve())


@pytest.mark.parametrize("name", ["_save_checkpoint", "_save_topk_checkpoint"])
def test_private_methods_of_lightnings_are_never_called(name) -> None:
    """A trainer with a subclass that overrides one warns of it, with the hook to define."""
    kind = type("Mine", (ModelCheckpoint,), {name: lambda self, trainer, path: None})
    with pytest.warns(TrainerHooksWarning, match=f"calls the method '{name}'.*on_checkpoint_saved"):
        Trainer(callbacks=[kind()], logger=False)


def test_a_misspelt_option_is_told_with_the_nearest() -> None:
    """Python's own error would list none of the many options."""
    with pytest.raises(TypeError, match=r"argument 'save_topk'\. Did you mean 'save_top_k'\?"):
        ModelCheckpoint(save_topk=2)
