from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from trainer_hooks.compat.composer import Callback, ComposerModel, Trainer


class Net(ComposerModel):
    """A linear classifier of four numbers, in the style of Composer's minimal example."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)

    def forward(self, batch):
        inputs, _ = batch
        return self.layer(inputs)

    def loss(self, outputs, batch):
        _, targets = batch
        return torch.nn.functional.cross_entropy(outputs, targets)


class Recorder(Callback):
    """Keep each event with the epochs and batches that the timestamp had then."""

    def __init__(self):
        self.events = []

    @property
    def names(self):
        return [name for name, _, _ in self.events]

    def run_event(self, event, state, logger):
        now = state.timestamp
        self.events.append((event.value, int(now.epoch), int(now.batch)))
        super().run_event(event, state, logger)

    def close(self, state, logger):
        self.events.append(("close", 0, 0))

    def post_close(self):
        self.events.append(("post_close", 0, 0))


def batches(samples=16, size=4):
    """A loader of `samples / size` batches, the same each time."""
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(samples, 4), torch.randint(0, 3, (samples,)))
    return DataLoader(data, batch_size=size)


MICROBATCH = (
    "before_forward", "after_forward", "before_loss", "after_loss", "before_backward",
    "after_backward",
)  # fmt: skip


@pytest.fixture
def events_of_a_batch():
    """A function that returns the events of a fit of one batch, of so many parts, and evaluation.

    They are those of the pseudocode in Composer's page of the events.
    """

    def events(parts=1):
        return [
            "init", "before_load", "after_load", "fit_start", "iteration_start", "epoch_start",
            "before_dataloader", "after_dataloader", "batch_start", "before_train_batch",
            *MICROBATCH * parts, "after_train_batch", "batch_end", "batch_checkpoint",
            "before_dataloader", "epoch_end", "eval_before_all", "eval_start",
            "eval_batch_start", "eval_before_forward", "eval_after_forward", "eval_batch_end",
            "eval_end", "eval_after_all", "epoch_checkpoint", "fit_end",
        ]  # fmt: skip

    return events


@pytest.fixture
def loader():
    return batches


@pytest.fixture
def net():
    torch.manual_seed(1)
    return Net()


@pytest.fixture
def recorder():
    return Recorder()


@pytest.fixture
def make(net, monkeypatch, tmp_path):
    """A function that makes a quiet trainer of one epoch of four batches, on the CPU."""
    monkeypatch.chdir(tmp_path)
    made = []

    def maker(*callbacks, **options):
        given = {
            "model": net,
            "train_dataloader": batches(),
            "max_duration": "1ep",
            "device": "cpu",
            "progress_bar": False,
            "callbacks": list(callbacks),
            "run_name": "run",
            **options,
        }
        given.setdefault("optimizers", torch.optim.SGD(given["model"].parameters(), lr=0.1))
        made.append(Trainer(**given))
        return made[-1]

    yield maker
    for trainer in made:
        trainer.close()
