"""What a checkpoint file holds."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import enum
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from trainer_hooks import Callback, DataModule, Trainer, __version__
from trainer_hooks.errors import CheckpointStateError, UsageError


def load(path) -> dict:
    return torch.load(path, weights_only=True)


class Stateful(Callback):
    """A callback that saves whatever it was given."""

    def __init__(self, state) -> None:
        self.state = state

    def state_dict(self):
        return self.state

    def load_state_dict(self, state_dict) -> None:
        self.state = state_dict


def test_the_keys_of_a_file_are_those_that_other_tools_know(fitted, tmp_path):
    """A full checkpoint has Lightning's top-level keys and one more, and loads safely."""
    fitted().save_checkpoint(tmp_path / "a.ckpt")
    checkpoint = load(tmp_path / "a.ckpt")
    assert set(checkpoint) == {
        "epoch",
        "global_step",
        "pytorch-lightning_version",
        "state_dict",
        "loops",
        "callbacks",
        "optimizer_states",
        "lr_schedulers",
        "hparams_name",
        "hyper_parameters",
        "trainer_hooks",
    }
    assert (checkpoint["epoch"], checkpoint["global_step"]) == (1, 2)
    assert set(checkpoint["state_dict"]) == {"layer.weight", "layer.bias"}
    assert checkpoint["hyper_parameters"] == {"width": 2, "rate": 0.1}
    assert len(checkpoint["optimizer_states"]) == len(checkpoint["lr_schedulers"]) == 1
    own = checkpoint["trainer_hooks"]
    assert (own["format"], own["version"]) == (1, __version__)


def test_weights_alone_leave_out_what_only_a_resume_needs(fitted, tmp_path):
    """A weights-only file holds weights and hyperparameters, no optimizer, callbacks or numbers."""
    fitted(callbacks=[Stateful({"n": 1})]).save_checkpoint(tmp_path / "a.ckpt", weights_only=True)
    assert set(load(tmp_path / "a.ckpt")) == {
        "epoch",
        "global_step",
        "pytorch-lightning_version",
        "state_dict",
        "loops",
        "hparams_name",
        "hyper_parameters",
        "trainer_hooks",
    }


def test_a_file_of_this_framework_loads_into_torch(fitted, tmp_path, net_type):
    """Its weights are plain torch weights under the names of the module."""
    trainer = fitted()
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    module = net_type()
    module.load_state_dict(load(tmp_path / "a.ckpt")["state_dict"])
    assert torch.equal(module.layer.weight, trainer.module.layer.weight)


def test_saving_needs_a_module(tmp_path):
    """Before any run there is nothing to save, and no file is made."""
    trainer = Trainer(plugins=False, logger=False, enable_checkpointing=False)
    with pytest.raises(UsageError, match="nothing to save yet"):
        trainer.save_checkpoint(tmp_path / "a.ckpt")
    assert list(tmp_path.iterdir()) == []


@dataclasses.dataclass
class Point:
    x: int = 1


class Color(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    LOW = 1


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (Point(), "test_snapshot.Point"),
        (Color.RED, "test_snapshot.Color"),
        (Level.LOW, "test_snapshot.Level"),
        (Path("a"), "pathlib.PosixPath"),
        (np.zeros(2), "numpy.ndarray"),
        (np.float64(1.0), "numpy.float64"),
        (collections.deque([1]), "collections.deque"),
        (collections.defaultdict(int), "collections.defaultdict"),
        (dt.timedelta(1), "datetime.timedelta"),
        (frozenset({1}), "builtins.frozenset"),
        (range(3), "builtins.range"),
        (print, "builtins.builtin_function_or_method"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_object_in_a_state_is_refused_at_save_time(fitted, tmp_path, value, named):
    """A state that could not be loaded back safely is refused by callback and place in it."""
    callback = Stateful({"history": [0, {"best": value}]})
    trainer = fitted(callbacks=[callback])
    with pytest.raises(CheckpointStateError) as caught:
        trainer.save_checkpoint(tmp_path / "a.ckpt")
    text = str(caught.value)
    assert "the state of callback Stateful (state_key 'Stateful'" in text
    assert f"{named} at state['history'][1]['best']" in text
    assert "Save plain data and rebuild the object in load_state_dict." in text
    assert list(tmp_path.iterdir()) == []


def test_an_object_as_a_key_is_refused_too(fitted, tmp_path):
    """A dict's keys are looked at as well as its values."""
    trainer = fitted(callbacks=[Stateful({"seen": {Color.RED: 1}})])
    with pytest.raises(CheckpointStateError, match=r"at state\['seen'\] \(a key\)"):
        trainer.save_checkpoint(tmp_path / "a.ckpt")


def test_an_object_that_a_hook_adds_is_refused_by_its_key(fitted, tmp_path):
    """What on_save_checkpoint adds to the file must be plain as well."""

    class Adding(Callback):
        def on_save_checkpoint(self, trainer, module, checkpoint):
            checkpoint["extra"] = {"where": Path("a")}

    trainer = fitted(callbacks=[Adding()])
    with pytest.raises(CheckpointStateError, match=r"checkpoint\['extra'\].*state\['where'\]"):
        trainer.save_checkpoint(tmp_path / "a.ckpt")


PLAIN = {
    "numbers": [1, 2.5, True, None, 1 + 2j, float("inf"), 2**80],
    "texts": ("a", b"b", bytearray(b"c")),
    "sets": {1, 2},
    "ordered": collections.OrderedDict(a=1),
    "counter": collections.Counter("aab"),
    "nested": {"a": [{"b": ({},)}]},
    7: "a number as a key",
    "tensors": [torch.arange(3), torch.ones((), dtype=torch.bfloat16), torch.tensor([True])],
    "types": [torch.float16, torch.device("cpu"), torch.Size([1, 2])],
    "parameter": torch.nn.Parameter(torch.ones(1)),
}


@pytest.mark.parametrize("key", PLAIN)
def test_everything_that_is_allowed_comes_back(fitted, tmp_path, key):
    """Each kind of plain value is saved, and loaded back equal without running code."""
    fitted(callbacks=[Stateful({key: PLAIN[key]})]).save_checkpoint(tmp_path / "a.ckpt")
    back = load(tmp_path / "a.ckpt")["callbacks"]["Stateful"]
    assert list(back) == [key]
    assert type(back[key]) is type(PLAIN[key])
    if key == "tensors":
        assert all(map(torch.equal, back[key], PLAIN[key]))
    else:
        assert back[key] == PLAIN[key]


class Data(DataModule):
    def __init__(self) -> None:
        self.shards = 0

    def train_dataloader(self):
        self.shards += 1
        return DataLoader(TensorDataset(torch.ones(4, 2)), batch_size=2)

    def test_dataloader(self):
        return DataLoader(TensorDataset(torch.ones(4, 2)), batch_size=2)

    def state_dict(self):
        return {"shards": self.shards}

    def load_state_dict(self, state_dict):
        self.shards = state_dict["shards"] + 10


def test_a_data_modules_state_is_under_its_name(fitted, tmp_path, net_type):
    """A data module's state is saved, also with weights alone, and restored."""
    fitted(datamodule=Data()).save_checkpoint(tmp_path / "a.ckpt", weights_only=True)
    assert load(tmp_path / "a.ckpt")["Data"] == {"shards": 1}

    class Testing(net_type):
        def test_step(self, batch, batch_idx):
            pass

    data = Data()
    trainer = Trainer(plugins=False, logger=False, enable_checkpointing=False, accelerator="cpu")
    trainer.test(Testing(), datamodule=data, ckpt_path=tmp_path / "a.ckpt", verbose=False)
    assert data.shards == 11


def test_the_saved_path_is_told(fitted, tmp_path):
    """on_checkpoint_saved is given the absolute path once the file is there."""
    told = []

    class Listening(Callback):
        def on_checkpoint_saved(self, trainer, module, path):
            told.append((path, Path(path).is_file()))

    fitted(callbacks=[Listening()]).save_checkpoint(tmp_path / "a.ckpt")
    assert told == [(str(tmp_path / "a.ckpt"), True)]
