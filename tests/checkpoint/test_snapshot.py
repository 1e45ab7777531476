"""What a checkpoint file holds."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
from pathlib import Path

import numpy as np
import pytest
import torch
from quiet_trainers import QUIET_OPTIONS
from torch.utils.data import DataLoader, TensorDataset

from trainer_hooks import Callback, DataModule, Trainer, __version__
from trainer_hooks.checkpoint.parts import FORMAT
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
    assert (own["format"], own["version"]) == (FORMAT, __version__)
    assert own["progress"]["epochs_completed"] == 1


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


class Table(dict):
    pass


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (Point(), "test_snapshot.Point"),
        (np.array([None]), "numpy.ndarray"),
        (np.random.default_rng(1), "numpy.random._generator.Generator"),
        (Table(), "test_snapshot.Table"),
        (dt.tzinfo(), "datetime.tzinfo"),
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


@pytest.mark.parametrize("method", ["save_checkpoint", "save_in_background"])
def test_a_tensor_without_values_is_refused_alike(fitted, tmp_path, method):
    """A meta tensor is named by whichever way it is saved: there is nothing of it to save."""
    trainer = fitted(callbacks=[Stateful({"mean": torch.empty(2, device="meta")})])
    with pytest.raises(CheckpointStateError, match=r"at state\['mean'\].*has no values"):
        getattr(trainer, method)(tmp_path / "a.ckpt")
    assert list(tmp_path.iterdir()) == []


def test_an_object_as_a_key_is_refused_too(fitted, tmp_path):
    """A dict's keys are looked at as well as its values."""
    trainer = fitted(callbacks=[Stateful({"seen": {range(3): 1}})])
    with pytest.raises(CheckpointStateError, match=r"at state\['seen'\] \(a key\)"):
        trainer.save_checkpoint(tmp_path / "a.ckpt")


def test_an_object_that_a_hook_adds_is_refused_by_its_key(fitted, tmp_path):
    """What on_save_checkpoint adds to the file must be plain as well."""

    class Adding(Callback):
        def on_save_checkpoint(self, trainer, module, checkpoint):
            checkpoint["extra"] = {"where": range(3)}

    trainer = fitted(callbacks=[Adding()])
    with pytest.raises(CheckpointStateError, match=r"checkpoint\['extra'\].*state\['where'\]"):
        trainer.save_checkpoint(tmp_path / "a.ckpt")


def test_a_factory_that_is_a_function_is_refused_by_its_place(fitted, tmp_path):
    """A defaultdict whose factory only code could rebuild is named, with what it may be."""
    trainer = fitted(callbacks=[Stateful({"seen": collections.defaultdict(lambda: 0)})])
    with pytest.raises(CheckpointStateError) as caught:
        trainer.save_checkpoint(tmp_path / "a.ckpt")
    assert "of type builtins.function at state['seen'] (its factory)" in str(caught.value)
    assert "It must be one of int, float" in str(caught.value)


def test_the_error_about_a_huge_value_is_short(fitted, tmp_path):
    """An object with a repr of pages, or with a broken one, does not fill the screen."""

    class Loud:
        def __repr__(self):
            return "x" * 10_000

    class Broken:
        def __repr__(self):
            raise ValueError

    for value in (Loud(), Broken()):
        trainer = fitted(callbacks=[Stateful({"a": value})])
        with pytest.raises(CheckpointStateError) as caught:
            trainer.save_checkpoint(tmp_path / "a.ckpt")
        assert len(str(caught.value)) < 800


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


RICH = {
    "deque": collections.deque([1, np.float64(2)], maxlen=2),
    "defaultdict": collections.defaultdict(list, {"a": [1]}),
    "frozenset": frozenset({1}),
    "where": Path("a") / "b",
    "when": dt.datetime(2026, 1, 2, tzinfo=dt.UTC),
    "wait": dt.timedelta(minutes=3),
    "best": np.float64(0.5),
    "__trainer_hooks__": "a key like any other",
}


def test_what_torch_does_not_know_comes_back_to_the_callback(fitted, tmp_path, net_type):
    """A resumed callback is handed its values as it saved them, types and all."""
    fitted(callbacks=[Stateful(RICH)]).save_checkpoint(tmp_path / "a.ckpt")
    load(tmp_path / "a.ckpt")  # torch opens the file without knowing of any of it
    callback = Stateful({})
    resumed = Trainer(callbacks=[callback], max_epochs=2, **QUIET_OPTIONS)
    data = DataLoader(TensorDataset(torch.ones(4, 2)), batch_size=2)
    resumed.fit(net_type(), data, ckpt_path=tmp_path / "a.ckpt")
    assert callback.state == RICH
    assert [type(value) for value in callback.state.values()] == list(map(type, RICH.values()))


def test_hooks_see_values_as_they_are(fitted, tmp_path):
    """on_save_checkpoint and on_load_checkpoint meet values, not what stands for them in a file."""
    seen = []

    class Extra(Callback):
        def on_save_checkpoint(self, trainer, module, checkpoint):
            checkpoint["extra"] = {"where": Path("a")}

        def on_load_checkpoint(self, trainer, module, checkpoint):
            seen.append(checkpoint["extra"])

    trainer = fitted(callbacks=[Extra()])
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    trainer.max_epochs = 2
    trainer.fit(trainer.module, torch.ones(2, 1, 1, 2), ckpt_path=tmp_path / "a.ckpt")
    assert seen == [{"where": Path("a")}]


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
