"""Weights as a safetensors file."""

from __future__ import annotations

import sys

import pytest
import safetensors
import safetensors.torch
import torch
from torch.utils.data import DataLoader, TensorDataset

from trainer_hooks import Callback, Module, Trainer
from trainer_hooks.callbacks.saving.model_checkpoint import ModelCheckpoint
from trainer_hooks.checkpoint.file import load_checkpoint
from trainer_hooks.checkpoint.safetensors_file import dump_safetensors, read_safetensors
from trainer_hooks.errors import CheckpointError, CheckpointNotFoundError, UsageError


@pytest.fixture
def saved(fitted, net_type, tmp_path):
    """A file of weights, and the module that they are of."""
    trainer = fitted(net_type(rate=0.3))
    trainer.save_checkpoint(tmp_path / "a.safetensors", weights_only=True)
    return tmp_path / "a.safetensors", trainer.module


def test_other_tools_read_the_weights(saved):
    """The file is what the library itself reads: the weights under the module's names."""
    path, module = saved
    weights = safetensors.torch.load_file(path)
    assert set(weights) == {"layer.weight", "layer.bias"}
    assert torch.equal(weights["layer.weight"], module.layer.weight)


def test_a_module_is_made_from_it(saved, net_type):
    """load_from_checkpoint finds weights and hyperparameters; arguments given now win."""
    path, before = saved
    module = net_type.load_from_checkpoint(path)
    assert module.hparams == {"width": 2, "rate": 0.3}
    assert torch.equal(module.layer.weight, before.layer.weight)
    assert net_type.load_from_checkpoint(path, rate=0.5).hparams.rate == 0.5


def test_evaluation_takes_it(saved, net_type, fitted):
    """predict, and so validate and test, load the weights first."""
    path, before = saved

    class Predicting(net_type):
        def predict_step(self, batch, batch_idx):
            return self.layer.weight.clone()

    data = DataLoader(TensorDataset(torch.ones(2, 2)), batch_size=2)
    found = fitted().predict(Predicting(), data, ckpt_path=path)
    assert torch.equal(found[0], before.layer.weight)


def test_evaluation_does_not_miss_callbacks_states_in_it(saved, net_type, tmp_path):
    """Weights alone hold no callback's state, and nothing is said of that."""

    class Counter(Callback):
        def state_dict(self):
            return {"n": 1}

    class Predicting(net_type):
        def predict_step(self, batch, batch_idx):
            return batch

    trainer = Trainer(
        callbacks=[Counter()],
        default_root_dir=tmp_path,
        accelerator="cpu",
        plugins=False,
        logger=False,
        enable_progress_bar=False,
    )
    trainer.predict(Predicting(), [[0]], ckpt_path=saved[0])
    assert trainer.load_report is None


def test_a_saver_can_write_it(fitted, tmp_path):
    """ModelCheckpoint of weights alone writes it where its extension says so."""

    class Saver(ModelCheckpoint):
        FILE_EXTENSION = ".safetensors"

    saver = Saver(tmp_path, "{epoch}", save_weights_only=True)
    data = DataLoader(TensorDataset(torch.ones(4, 2)), batch_size=2)
    trainer = fitted()
    trainer.add_callback(saver)
    trainer.max_epochs = 2
    trainer.fit(trainer.module, data)
    assert [path.name for path in tmp_path.glob("epoch*")] == ["epoch=1.safetensors"]
    assert set(safetensors.torch.load_file(saver.best_model_path)) == {"layer.weight", "layer.bias"}


def test_a_fit_cannot_go_on_from_it(saved, net_type, fitted):
    """It is refused like any file that holds weights alone."""
    data = DataLoader(TensorDataset(torch.ones(2, 2)), batch_size=2)
    with pytest.raises(CheckpointError, match=r"cannot be resumed from: it holds weights alone"):
        fitted().fit(net_type(), data, ckpt_path=saved[0])


def test_more_than_weights_is_refused(fitted, tmp_path):
    """Without weights_only=True nothing is written, and the message says both ways out."""
    trainer = fitted()
    with pytest.raises(UsageError, match=r"Pass weights_only=True, or a path that ends in .ckpt"):
        trainer.save_checkpoint(tmp_path / "a.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_without_the_library_it_says_what_to_install(saved, fitted, net_type, monkeypatch):
    """Writing and reading name the package; a checkpoint needs it not."""
    path, _ = saved
    trainer = fitted()
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(CheckpointError, match=r"pip install trainer-hooks\[safetensors\]"):
        trainer.save_checkpoint(path.with_name("b.safetensors"), weights_only=True)
    with pytest.raises(CheckpointError, match=r"pip install trainer-hooks\[safetensors\]"):
        net_type.load_from_checkpoint(path)
    trainer.save_checkpoint(path.with_name("b.ckpt"), weights_only=True)
    assert sorted(item.name for item in path.parent.iterdir()) == ["a.safetensors", "b.ckpt"]


class Tied(Module):
    """Weights that are one, that are views of one memory, and that lie otherwise in memory."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(3, 3, bias=False)
        self.second = torch.nn.Linear(3, 3, bias=False)
        self.second.weight = self.first.weight
        whole = torch.arange(10.0)
        self.register_buffer("whole", whole)
        self.register_buffer("part", whole[2:4])
        self.register_buffer("folded", whole.view(2, 5))
        self.register_buffer("turned", torch.arange(6.0).reshape(2, 3).t())
        self.register_buffer("empty", torch.ones(0))
        self.register_buffer("small", torch.ones(2, dtype=torch.bfloat16))
        self.register_buffer("yes", torch.tensor(True))


def test_tied_and_overlapping_weights_come_back(fitted, tmp_path):
    """Ties are written once and come back to both names; views get memory of their own."""
    module = Tied()
    trainer = fitted()
    trainer._core.module = module
    trainer.save_checkpoint(tmp_path / "a.safetensors", weights_only=True)
    assert "second.weight" not in safetensors.torch.load_file(tmp_path / "a.safetensors")
    read = read_safetensors(tmp_path / "a.safetensors")
    for name, value in module.state_dict().items():
        assert torch.equal(read["state_dict"][name], value)
        assert read["state_dict"][name].dtype == value.dtype
    again = Tied.load_from_checkpoint(tmp_path / "a.safetensors")
    assert torch.equal(again.first.weight, module.first.weight)
    assert again.second.weight is again.first.weight


@pytest.mark.parametrize(
    ("weight", "said"),
    [
        (torch.eye(2).to_sparse(), r"'a' \(torch.sparse_coo\) cannot be written"),
        (torch.empty(2, device="meta"), "'a'"),
        ({"b": 1}, r"'a' \(dict\) cannot be written"),
        (1.0, r"'a' \(float\) cannot be written"),
    ],
    ids=["sparse", "meta", "dict", "float"],
)
def test_what_is_no_dense_tensor_is_named(tmp_path, weight, said):
    """A weight that the format has no place for is refused by its name."""
    with (tmp_path / "a").open("wb") as file, pytest.raises(CheckpointError, match=said):
        dump_safetensors({"state_dict": {"a": weight}, "trainer_hooks": {}}, file)


def test_hyperparameters_that_json_does_not_know_are_left_out(fitted, tmp_path, net_type):
    """Tuples, tensors, sets and keys that are no texts would come back as something else."""

    class Rich(net_type):
        def __init__(self, width=2, rate=0.1, **others):
            super().__init__(width, rate)
            self.save_hyperparameters()

    kept = {"names": ["a"], "deep": {"b": [1.5, None, True]}, "where": tmp_path}
    others = {"pair": (1, 2), "keys": {1: 2}, "t": torch.ones(1), "s": {1}}
    trainer = fitted(Rich(**kept, **others))
    trainer.save_checkpoint(tmp_path / "a.safetensors", weights_only=True)
    read = load_checkpoint(tmp_path / "a.safetensors")
    assert read["hyper_parameters"] == {"width": 2, "rate": 0.1, **kept}


def test_another_tools_file_gives_its_weights(tmp_path, net_type):
    """Without our metadata there are the weights alone, and the defaults of __init__."""
    weights = {"layer.weight": torch.ones(1, 2), "layer.bias": torch.zeros(1)}
    for metadata in (None, {"format": "pt"}):
        safetensors.torch.save_file(weights, tmp_path / "a.safetensors", metadata)
        module = net_type.load_from_checkpoint(tmp_path / "a.safetensors")
        assert torch.equal(module.layer.weight, weights["layer.weight"])


def test_a_missing_file_is_said(tmp_path, net_type):
    """It is the error of a checkpoint that is not there."""
    with pytest.raises(CheckpointNotFoundError, match="is not there"):
        net_type.load_from_checkpoint(tmp_path / "a.safetensors")


def test_a_damaged_file_is_one_clear_error(saved, net_type):
    """A file that was cut at any place is refused by its name."""
    path, _ = saved
    content = path.read_bytes()
    for end in range(0, len(content), 7):
        path.write_bytes(content[:end])
        with pytest.raises(CheckpointError, match="is damaged or no safetensors file"):
            net_type.load_from_checkpoint(path)


@pytest.mark.parametrize("place", ["cpu", torch.device("cpu"), {"cuda:0": "cpu"}, "meta"])
def test_map_location_moves_the_module(saved, net_type, place):
    """It is where the module is afterwards, as for any checkpoint."""
    module = net_type.load_from_checkpoint(saved[0], map_location=place)
    assert module.device.type == ("meta" if place == "meta" else "cpu")


def test_a_write_that_fails_leaves_the_old_file(saved, fitted):
    """It is written beside the target first, like every checkpoint."""
    path, _ = saved
    before = path.read_bytes()
    trainer = fitted()
    trainer.module.register_buffer("bad", torch.eye(2).to_sparse())
    with pytest.raises(CheckpointError, match="cannot be written as safetensors"):
        trainer.save_checkpoint(path, weights_only=True)
    assert path.read_bytes() == before
    assert [item.name for item in path.parent.iterdir()] == ["a.safetensors"]
