"""TensorBoardLogger, read back by TensorBoard's own reader."""

from __future__ import annotations

import errno
import importlib.util
import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tensorboard.summary.writer import event_file_writer

import trainer_hooks
from trainer_hooks.errors import OptionError, TrainerHooksWarning, UsageError
from trainer_hooks.loggers import TensorBoardLogger


def events(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    sizes = {"scalars": 0, "images": 0, "tensors": 0}
    return EventAccumulator(str(folder), size_guidance=sizes).Reload()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"save_dir": None}, "save_dir None of TensorBoardLogger: it must be a path"),
        ({"save_dir": "x", "name": 3}, "name 3 of TensorBoardLogger: it must be a string"),
        ({"save_dir": "x", "version": -1}, "version -1 of TensorBoardLogger"),
        ({"save_dir": "x", "prefix": None}, "prefix None of TensorBoardLogger"),
        ({"save_dir": "x", "sub_dir": 3}, "sub_dir 3 of TensorBoardLogger: it must be a path"),
        ({"save_dir": "x", "max_que": 3}, "max_que of TensorBoardLogger: is no option of it"),
    ],
)
def test_an_argument_that_breaks_its_rule(arguments, message):
    """A bad argument is refused at construction."""
    with pytest.raises(OptionError, match=message):
        TensorBoardLogger(**arguments)


def test_without_tensorboard(monkeypatch):
    """Where tensorboard is not installed, the extra to install is named."""
    monkeypatch.setattr("trainer_hooks.loggers.conversion.find_spec", lambda name: None)
    with pytest.raises(OptionError, match=r"pip install 'trainer-hooks\[tensorboard\]'"):
        TensorBoardLogger("x")


def test_nothing_is_made_before_the_first_write(tmp_path):
    """Asking for the folder, an empty save and finalize leave nothing on the disk."""
    logger = TensorBoardLogger(tmp_path / "logs", name=None, version="a", sub_dir="b")
    assert logger.log_dir == str(tmp_path / "logs/a/b")
    assert (logger.name, logger.version, logger.sub_dir) == ("", "a", "b")
    logger.save()
    logger.finalize("success")
    assert not (tmp_path / "logs").exists()


def test_hyperparameters_lie_beside_the_events(tmp_path):
    """With a sub_dir they are in it, as in Lightning."""
    logger = TensorBoardLogger(tmp_path, name="x", version="v", sub_dir="s")
    logger.log_hyperparams({"width": 3})
    assert {path.name for path in (tmp_path / "x/v/s").iterdir()} >= {"hparams.yaml"}
    assert not (tmp_path / "x/v/hparams.yaml").exists()


def test_a_training_is_read_back(train, tmp_path, scalars):
    """TensorBoard finds the scalars at their steps, the graph and the hyperparameters."""
    logger = TensorBoardLogger(tmp_path, log_graph=True, prefix="a")
    train(logger)
    found = scalars(logger.log_dir)
    assert [step for step, _ in found["a-loss_step"]] == [1, 3, 5, 7, 9, 11]
    assert [step for step, _ in found["a-val_loss"]] == [5, 11]
    assert found["hp_metric"] == [(0, -1.0)]
    read = events(logger.log_dir)
    names = {node.name for node in read.Graph().node}
    assert {name for name in names if "Linear" in name}, names
    plugins = read.summary_metadata
    assert plugins["_hparams_/session_start_info"].plugin_data.plugin_name == "hparams"
    saved = json.loads(Path(logger.log_dir, "hparams.json").read_text())
    assert saved == {"lr": 0.1, "layers": {"width": 4}}


def test_images_tables_and_texts_are_read_back(tmp_path):
    """Pixels come back as they were, and tables as Markdown."""
    logger = TensorBoardLogger(tmp_path)
    picture = torch.arange(60).reshape(3, 4, 5) * 4
    logger.log_image("map", [picture, picture[0]], 3)
    logger.log_table("t", ["a", "b"], [[1, "x|y"]], step=4)
    logger.log_text("note", "hello", 5)
    logger.finalize("success")
    read = events(logger.log_dir)
    assert read.Tags()["images"] == ["map/0", "map/1"]
    [event] = read.Images("map/0")
    pixels = np.asarray(Image.open(io.BytesIO(event.encoded_image_string)))
    assert event.step == 3
    assert (pixels == picture.permute(1, 2, 0).numpy()).all()
    [text] = read.Tensors("t/text_summary")
    assert text.tensor_proto.string_val[0].decode() == "| a | b |\n| --- | --- |\n| 1 | x\\|y |"
    [note] = read.Tensors("note/text_summary")
    assert (note.step, note.tensor_proto.string_val[0]) == (5, b"hello")


def test_hyperparameters_with_metrics(tmp_path, scalars):
    """Metrics beside hyperparameters are scalars too; default_hp_metric=False writes none."""
    logger = TensorBoardLogger(tmp_path)
    logger.log_hyperparams({"lr": 0.1, "kind": dict}, {"best": 0.5}, step=2)
    logger.finalize("success")
    assert scalars(logger.log_dir) == {"best": [(2, 0.5)]}
    bare = TensorBoardLogger(tmp_path, default_hp_metric=False)
    bare.log_hyperparams({"lr": 0.1})
    bare.log_metrics({"loss": 1.0}, 0)
    bare.finalize("success")
    assert scalars(bare.log_dir) == {"loss": [(0, 1.0)]}


def test_the_writer_is_torchs(tmp_path, scalars):
    """`experiment` is a SummaryWriter that can be used for more, also after finalize."""
    from torch.utils.tensorboard import SummaryWriter

    logger = TensorBoardLogger(tmp_path)
    assert isinstance(logger.experiment, SummaryWriter)
    logger.experiment.add_scalar("own", 1.0, 4)
    logger.finalize("success")
    logger.log_metrics({"later": 2.0}, 5)
    logger.finalize("success")
    assert scalars(logger.log_dir) == {"own": [(4, 1.0)], "later": [(5, 2.0)]}


def test_a_graph_needs_an_input(tmp_path):
    """log_graph without an input is refused with what to set; without log_graph nothing is run."""
    model = torch.nn.Linear(1, 1)
    with pytest.raises(OptionError, match="Set its example_input_array"):
        TensorBoardLogger(tmp_path, log_graph=True).log_graph(model)
    TensorBoardLogger(tmp_path).log_graph(model)
    assert list(tmp_path.iterdir()) == []


def test_a_graph_leaves_the_model_as_it_was(tmp_path):
    """Tracing moves no running mean, no mode and no random number."""
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(2), torch.nn.Dropout())
    before = model[0].running_mean.clone(), torch.get_rng_state()
    TensorBoardLogger(tmp_path, log_graph=True).log_graph(model, torch.ones(4, 2))
    assert torch.equal(model[0].running_mean, before[0])
    assert torch.equal(torch.get_rng_state(), before[1])
    assert all(part.training for part in model.modules())


def test_rows_of_a_full_disk_are_in_the_checkpoint(tmp_path, monkeypatch, scalars):
    """What may not have reached the disk when a checkpoint is saved is written by its resume."""

    def full(*args):
        raise OSError(errno.ENOSPC, "no space left on device")

    logger = TensorBoardLogger(tmp_path)
    logger.log_metrics({"loss": 0.0}, 0)
    logger.save()
    for step in range(1, 4):
        logger.log_metrics({"loss": float(step)}, step)
    with monkeypatch.context() as patch:
        patch.setattr(logger.experiment, "flush", full)
        state = json.loads(json.dumps(logger.run_state()))
    assert logger.unwritten_steps() == [1, 2, 3]
    again = TensorBoardLogger(tmp_path)
    again.resume_run(state)
    again.log_metrics({"loss": 4.0}, 4)
    again.finalize("success")
    assert again.unwritten_steps() == []
    assert again.log_dir == logger.log_dir
    folder = tmp_path / "trainer_logs/version_0"
    assert scalars(folder)["loss"] == [(step, float(step)) for step in range(5)]


def test_a_live_server_is_told_which_steps_are_dropped(tmp_path, monkeypatch):
    """A resumed run's new file begins by telling a server that has read the old one."""
    # files of one second are read in the order of their numbers as texts: 10 comes before 9
    monkeypatch.setattr(event_file_writer, "_global_uid", event_file_writer.AtomicCounter(0))
    logger = TensorBoardLogger(tmp_path)
    for step in range(5):
        logger.log_metrics({"loss": float(step)}, step)
    state = logger.run_state()
    live = events(logger.log_dir)
    for step in range(5, 9):
        logger.log_metrics({"loss": 100.0}, step)
    logger.save()
    live.Reload()
    assert [event.step for event in live.Scalars("loss")] == list(range(9))
    again = TensorBoardLogger(tmp_path)
    again.resume_run(state)
    again.log_metrics({"loss": 5.0}, 5)
    again.finalize("success")
    live.Reload()
    assert [event.value for event in live.Scalars("loss")] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_tensorboard_is_found_here():
    """The tests above are about the real thing."""
    assert importlib.util.find_spec("tensorboard") is not None


def test_a_graph_of_a_module_that_no_trainer_runs(tmp_path) -> None:
    """Its properties that need a run are not read; `self.log` in forward drops the value."""

    class Logs(trainer_hooks.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def forward(self, x):
            self.log("mean", x.mean())
            return self.layer(x)

    module = Logs()
    with pytest.warns(TrainerHooksWarning, match="no trainer runs"):
        TensorBoardLogger(tmp_path, log_graph=True).log_graph(module, torch.ones(1, 2))
    assert type(module) is Logs
    with pytest.raises(UsageError, match="attached to no trainer"):
        module.trainer  # noqa: B018
