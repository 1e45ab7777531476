"""Rows of Composer's pages on callbacks, with the values that Composer has."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from trainer_hooks.compat.composer import Trainer
from trainer_hooks.compat.composer.callbacks import (
    CheckpointSaver,
    EarlyStopper,
    OptimizerMonitor,
    ThresholdStopper,
)
from trainer_hooks.compat.composer.loggers import InMemoryLogger
from trainer_hooks.compat.composer.models import ComposerClassifier
from trainer_hooks.compat.composer.optim import DecoupledAdamW


def trained(*callbacks, optimizer=torch.optim.SGD, **options):
    """Train four epochs of four batches; return the timestamp's epochs and batches."""
    torch.manual_seed(1)
    data = TensorDataset(torch.randn(16, 4), torch.randint(0, 3, (16,)))
    model = ComposerClassifier(torch.nn.Linear(4, 3), num_classes=3)
    trainer = Trainer(
        model=model, train_dataloader=DataLoader(data, batch_size=4), max_duration="4ep",
        optimizers=optimizer(model.parameters(), lr=0.1), callbacks=list(callbacks), run_name="r",
        progress_bar=False, **options,
    )  # fmt: skip
    trainer.fit()
    timestamp = trainer.state.timestamp
    trainer.close()
    return int(timestamp.epoch), int(timestamp.batch)


def files():
    return sorted(str(path) for path in Path().rglob("*.pt"))


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


ACCURACY = "MulticlassAccuracy"


@pytest.mark.parametrize(
    ("make", "stopped"),
    [
        (lambda: ThresholdStopper(ACCURACY, "train", 0.0), (1, 4)),
        (lambda: ThresholdStopper(ACCURACY, "train", 0.0, stop_on_batch=True), (0, 1)),
        (lambda: ThresholdStopper(ACCURACY, "train", 1.1), (4, 16)),
        (lambda: EarlyStopper(ACCURACY, "train", patience="1ep", min_delta=0.9), (3, 12)),
        (lambda: EarlyStopper(ACCURACY, "train", patience="2ep", min_delta=0.9), (4, 16)),
        (lambda: EarlyStopper(ACCURACY, "train", patience="2ba", min_delta=0.9), (1, 4)),
    ],
    ids=["threshold", "threshold in batches", "never", "1ep", "2ep", "2ba"],
)
def test_stoppers_by_a_metric_of_the_training(make, stopped):
    """The label `train` is that of the model's training metrics."""
    assert trained(make()) == stopped


def test_a_metric_of_the_training_that_is_not_there():
    """The error names it."""
    with pytest.raises(ValueError, match="Nope"):
        trained(ThresholdStopper("Nope", "train", 0.0))


@pytest.mark.parametrize("given", [{}, {"folder": "{run_name}/checkpoints"}])
def test_the_folder_of_a_saver_has_the_name_of_the_run(given):
    """As Composer's default folder has."""
    trained(CheckpointSaver(**given, latest_filename=None))
    assert files() == [f"r/checkpoints/ep{n}-ba{4 * n}-rank0.pt" for n in (1, 2, 3, 4)]


def test_a_save_interval_of_the_state_and_the_event():
    """It is asked after each batch and epoch, with the state of that moment."""
    asked = []

    def is_due(state, event):
        asked.append((str(event).rpartition(".")[2], int(state.timestamp.batch)))
        return event.value == "batch_checkpoint" and int(state.timestamp.batch) % 3 == 0

    trained(
        CheckpointSaver("z", save_interval=is_due, latest_filename=None, filename="ba{batch}.pt")
    )
    assert [name for name in files() if name != "z/ba16.pt"] == [
        "z/ba12.pt", "z/ba15.pt", "z/ba3.pt", "z/ba6.pt", "z/ba9.pt",
    ]  # fmt: skip
    assert asked[3:5] == [("BATCH_CHECKPOINT", 4), ("EPOCH_CHECKPOINT", 4)]


def test_a_name_that_a_filename_cannot_have():
    """The error names it, and no file is written."""
    with pytest.raises((ValueError, KeyError), match="nope"):
        trained(CheckpointSaver("z", filename="{nope}-ep{epoch}.pt", latest_filename=None))
    assert files() == []


def test_the_name_of_the_run_in_a_filename():
    """It can be in the filename, too, and a resume by the same saver finds its state."""
    saver = CheckpointSaver("z", filename="{run_name}-ep{epoch}.pt", latest_filename=None)
    key = saver.state_key
    trained(saver)
    assert files() == [f"z/r-ep{n}.pt" for n in (1, 2, 3, 4)]
    assert saver.state_key == key


GRADIENTS = ([0.7061368, 0.5382389], [0.7061368, 0.6218689])
ADAM = {
    "l2_norm/update/module.weight": [0.346418, 0.1897773],
    "l2_norm/update/module.bias": [0.1732086, 0.102111],
}
"""The first two values of Composer 0.32.1, at the seed of `trained`."""


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, DecoupledAdamW])
def test_the_names_and_values_of_an_optimizers_metrics(optimizer):
    """Parameters have the model's own names, and DecoupledAdamW reports on each."""
    logger = InMemoryLogger()
    trained(OptimizerMonitor(batch_log_interval=1), optimizer=optimizer, loggers=[logger])
    known = {
        "l2_norm/grad/global": GRADIENTS[optimizer is DecoupledAdamW],
        "l2_norm/grad/module.bias": None,
        "l2_norm/grad/module.weight": None,
    }
    if optimizer is DecoupledAdamW:
        known |= dict.fromkeys(
            f"l2_norm/{kind}/module.{name}" for kind in ("moment", "param", "update")
            for name in ("weight", "bias")
        )  # fmt: skip
        known |= ADAM
    logged = {
        name: [float(value[1]) for value in values][:2]
        for name, values in logger.data.items()
        if name.startswith("l2_norm")
    }
    assert sorted(logged) == sorted(known)
    for name, values in known.items():
        if values is not None:
            assert logged[name] == pytest.approx(values, rel=1e-5), name
