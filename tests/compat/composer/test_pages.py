"""Rows of Composer's pages on callbacks, with the values that Composer has."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from trainer_hooks.compat.composer import Callback, Event, Trainer
from trainer_hooks.compat.composer.callbacks import (
    CheckpointSaver,
    EarlyStopper,
    ExportForInferenceCallback,
    OptimizerMonitor,
    ThresholdStopper,
)
from trainer_hooks.compat.composer.loggers import InMemoryLogger
from trainer_hooks.compat.composer.models import ComposerClassifier
from trainer_hooks.compat.composer.optim import DecoupledAdamW


def made(*callbacks, optimizer=torch.optim.SGD, kind=ComposerClassifier, **options):
    """Make a trainer of four epochs of four batches."""
    torch.manual_seed(1)
    data = TensorDataset(torch.randn(16, 4), torch.randint(0, 3, (16,)))
    model = kind(torch.nn.Linear(4, 3), num_classes=3)
    given = {
        "model": model, "train_dataloader": DataLoader(data, batch_size=4), "max_duration": "4ep",
        "optimizers": optimizer(model.parameters(), lr=0.1), "callbacks": list(callbacks),
        "run_name": "r", "progress_bar": False,
    }  # fmt: skip
    return Trainer(**{**given, **options})


def trained(*callbacks, **options):
    """Train with `made`; return the timestamp's epochs and batches."""
    trainer = made(*callbacks, **options)
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


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_the_model_is_exported_under_its_own_names():
    """The file computes the outputs of the ComposerModel for another batch than it has seen."""
    trainer = made(ExportForInferenceCallback("torchscript", "m.pt"), max_duration="1ep")
    trainer.fit()
    trainer.close()
    exported, model = torch.jit.load("m.pt"), trainer.state.model
    batch = [torch.randn(3, 4), torch.zeros(3, dtype=torch.long)]
    torch.testing.assert_close(exported(batch), model(batch), check_stride=False)
    assert dict(exported.named_parameters()).keys() == dict(model.named_parameters()).keys()


# --- the moments of the events ---


def weight_of(state):
    return next(state.model.parameters()).sum().item()


def test_the_events_around_a_file():
    """A trainer that is made has fired INIT and AFTER_LOAD; what FIT_END changes is in no file."""
    seen = []

    class Look(Callback):
        def run_event(self, event, state, logger):
            if event in (Event.INIT, Event.AFTER_LOAD, Event.EPOCH_CHECKPOINT):
                seen.append((event, int(state.timestamp.batch), weight_of(state)))
            if event is Event.FIT_END:
                next(state.model.parameters()).data.zero_()

    saved = {"save_folder": "z", "save_filename": "e{epoch}.pt"}
    trained(Look(), max_duration="1ep", **saved)
    *_, (_, batch, weight) = seen
    seen.clear()
    made(Look(), load_path="z/e1.pt", save_overwrite=True, **saved).close()
    assert [event for event, *_ in seen] == [Event.INIT, Event.AFTER_LOAD]
    assert seen[0][1:] != seen[1][1:] == (batch, weight)


def test_each_fit_starts_with_a_moment_to_change_the_data():
    """A data set is changed in place at FIT_START, and a layer is replaced at INIT."""
    sums = []

    class Change(Callback):
        def init(self, state, logger):
            state.model.module = torch.nn.Sequential(state.model.module, torch.nn.Tanh())

        def fit_start(self, state, logger):
            inputs, targets = state.dataloader.dataset.tensors
            state.dataloader.dataset.tensors = (inputs + 100, targets)

        def after_forward(self, state, logger):
            assert state.outputs.abs().max() <= 1
            sums.append(round(state.batch[0].mean().item() / 100))

    trainer = made(Change(), max_duration="1ba")
    trainer.fit()
    trainer.fit(duration="1ba")
    trainer.close()
    assert sums == [1, 2]


@pytest.mark.parametrize(
    ("interval", "first"), [("1ba", "batch_checkpoint"), ("1ep", "epoch_checkpoint")]
)
def test_a_moment_for_saving_has_the_metrics_of_the_evaluation(interval, first):
    """It is the first at which `state.eval_metric_values` is filled after the evaluation."""
    seen = []

    class Look(Callback):
        def run_event(self, event, state, logger):
            if "eval" not in event.value and ACCURACY in state.eval_metric_values:
                seen.append(event.value)

    data = TensorDataset(torch.ones(2, 4), torch.zeros(2, dtype=torch.long))
    loader = DataLoader(data, batch_size=2)
    trained(Look(), max_duration="1ep", eval_dataloader=loader, eval_interval=interval)
    assert seen[0] == first


class Reads(TensorDataset):
    """Notes that samples are read."""

    def __init__(self):
        super().__init__(torch.ones(4, 4), torch.zeros(4, dtype=torch.long))
        self.calls = []

    def __getitem__(self, index):
        if self.calls[-1:] != ["read()"]:
            self.calls.append("read()")
        return super().__getitem__(index)


class Calls(ComposerClassifier):
    """Notes the calls of its methods, and where a backward begins."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.calls = []

    def forward(self, batch):
        self.calls.append("forward()")
        return super().forward(batch)

    def loss(self, outputs, batch, *args, **kwargs):
        self.calls.append("loss()")
        loss = super().loss(outputs, batch, *args, **kwargs)
        loss.register_hook(lambda _: self.calls.append("backward()"))
        return loss

    def eval_forward(self, batch, outputs=None):
        self.calls.append("eval_forward()")
        return self.module(batch[0])

    def update_metric(self, batch, outputs, metric):
        if "update_metric()" not in self.calls:
            self.calls.append("update_metric()")
        super().update_metric(batch, outputs, metric)

    def get_metrics(self, is_train=False):
        return {} if is_train else super().get_metrics(is_train)


def test_the_events_stand_around_the_calls_of_the_model():
    """Before and after the reading, the parts of each microbatch, and those of an evaluation."""

    class Note(Callback):
        def run_event(self, event, state, logger):
            state.model.calls.append(event.value)

    data = Reads()
    trainer = made(
        Note(), kind=Calls, max_duration="1ba", device_train_microbatch_size=2,
        train_dataloader=DataLoader(data, batch_size=4),
        eval_dataloader=DataLoader(Reads(), batch_size=4),
    )  # fmt: skip
    calls = data.calls = trainer.state.model.calls
    calls.clear()
    trainer.fit()
    trainer.close()
    first = calls.index("before_dataloader")
    assert calls[first : first + 3] == ["before_dataloader", "read()", "after_dataloader"]
    microbatch = [
        "before_forward", "forward()", "after_forward", "before_loss", "loss()", "after_loss",
        "before_backward", "backward()", "after_backward",
    ]  # fmt: skip
    first = calls.index("before_train_batch") + 1
    assert calls[first : first + 19] == [*microbatch, *microbatch, "after_train_batch"]
    first = calls.index("eval_batch_start")
    assert calls[first : first + 6] == [
        "eval_batch_start", "eval_before_forward", "eval_forward()", "eval_after_forward",
        "update_metric()", "eval_batch_end",
    ]  # fmt: skip
