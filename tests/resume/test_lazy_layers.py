"""Layers that get their size with the first batch: trained, saved, resumed and loaded."""

from __future__ import annotations

import os
import signal

import pytest
import torch
from saving_callbacks import SaveEachStep
from torch import nn

from trainer_hooks import Callback, Module
from trainer_hooks.callbacks import (
    EMAWeightAveraging,
    ModelCheckpoint,
    ModelPruning,
    ModelSummary,
)
from trainer_hooks.errors import (
    CallbackError,
    CheckpointError,
    CheckpointStateError,
    TerminationSignal,
    TrainerHooksWarning,
)
from trainer_hooks.testing.nested_diff import nested_differences


class Net(Module):
    """Lazy weights, and lazy buffers that training changes."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.LazyLinear(2), nn.LazyBatchNorm1d(), nn.Linear(2, 1))

    def training_step(self, batch, batch_idx):
        return self.layers(batch).square().mean()

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.layers(batch).square().mean())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.1)


BATCHES = [torch.arange(6.0).reshape(2, 3).sin() * number for number in range(1, 5)]


@pytest.mark.parametrize("sanity_steps", [0, 1])
def test_a_run_with_lazy_layers_is_resumed_at_each_step(bare, tmp_path, sanity_steps) -> None:
    """Also with a sanity check, which runs the first batch."""
    options = {"max_epochs": 2, "num_sanity_val_steps": sanity_steps}
    torch.manual_seed(3)
    whole = Net()
    bare(SaveEachStep(tmp_path), ModelSummary(), **options).fit(whole, BATCHES, BATCHES[:1])
    for step in (1, 4, 6):
        resumed = Net()
        bare(ModelSummary(), **options).fit(
            resumed, BATCHES, BATCHES[:1], ckpt_path=tmp_path / f"{step}.ckpt"
        )
        assert nested_differences(dict(whole.state_dict()), dict(resumed.state_dict())) == []


def test_weights_are_loaded_into_lazy_layers(bare, tmp_path) -> None:
    """By `validate(ckpt_path=)` and by `load_from_checkpoint`, without any batch before."""
    net = Net()
    bare(SaveEachStep(tmp_path)).fit(net, BATCHES)
    loaded = Net.load_from_checkpoint(tmp_path / "4.ckpt")
    validated = Net()
    bare().validate(validated, BATCHES, ckpt_path=tmp_path / "4.ckpt", verbose=False)
    for other in (loaded, validated):
        assert nested_differences(dict(net.state_dict()), dict(other.state_dict())) == []
    other_width = Net()
    other_width.layers[2] = nn.Linear(3, 1)
    with pytest.raises(CheckpointError, match=r"layers.2.weight \(saved \(1, 2\), here \(1, 3\)\)"):
        bare().fit(other_width, BATCHES, ckpt_path=tmp_path / "4.ckpt")


def test_an_average_that_begins_before_the_first_batch_names_the_lazy_weight(bare) -> None:
    """Before any training, with the cure."""
    with pytest.raises(CallbackError, match=r"'layers.0.weight' of Net is lazy.*configure_model"):
        bare(EMAWeightAveraging()).fit(Net(), BATCHES)

    class Sized(Net):
        def configure_model(self):
            self.layers(BATCHES[0])

    trainer = bare(EMAWeightAveraging())
    trainer.fit(Sized(), BATCHES)
    assert trainer.global_step == 4


@pytest.mark.parametrize("is_given", [False, True])
def test_a_pruning_of_a_lazy_weight_names_it(bare, is_given) -> None:
    """Before any training, with the cure; weights that have a size can be pruned beside it."""
    net = Net()
    given = [(net.layers[0], "weight")] if is_given else None
    with pytest.raises(CallbackError, match=r"ModelPruning: 'weight' of LazyLinear in Net is lazy"):
        bare(ModelPruning("l1_unstructured", given)).fit(net, BATCHES)
    net = Net()
    pruning = ModelPruning("l1_unstructured", [(net.layers[2], "weight")], amount=1)
    bare(pruning).fit(net, BATCHES)
    assert int((net.layers[2].weight == 0).sum()) == 1


class AtStart(Callback):
    """Calls a function as the training begins, before the first batch."""

    def __init__(self, call) -> None:
        self.call = call

    def on_train_start(self, trainer, module) -> None:
        self.call(trainer)


def test_a_save_before_the_first_batch_names_the_lazy_weight(bare, tmp_path) -> None:
    """It has no values yet."""
    trainer = bare(AtStart(lambda trainer: trainer.save_checkpoint(tmp_path / "x.ckpt")))
    with pytest.raises(
        CheckpointStateError, match=r"lazy tensor at state\['layers.0.weight'\].*first batch"
    ):
        trainer.fit(Net(), BATCHES)
    assert list(tmp_path.iterdir()) == []


def test_a_signal_before_the_first_batch_ends_the_run_in_order(bare, tmp_path, handlers) -> None:
    """There is nothing to save: the same training starts again."""
    terminate = AtStart(lambda trainer: os.kill(os.getpid(), signal.SIGTERM))
    trainer = bare(terminate, ModelCheckpoint(tmp_path), enable_checkpointing=True)
    with (
        pytest.warns(TrainerHooksWarning, match="SIGTERM came before the first batch.*lazy"),
        pytest.raises(TerminationSignal),
    ):
        trainer.fit(Net(), BATCHES)
    assert list(tmp_path.iterdir()) == []
