"""What the tests of the loops share: a tiny module, batches, and a recorder of hooks."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from trainer_hooks import Callback, Module
from trainer_hooks.hooks.band import Band
from trainer_hooks.hooks.spec import HOOKS

PAIRS = {
    "setup": "teardown",
    "on_fit_start": "on_fit_end",
    "on_evaluation_run_start": "on_evaluation_run_end",
    "on_sanity_check_start": "on_sanity_check_end",
    "on_train_start": "on_train_end",
    "on_iteration_start": "on_iteration_end",
    "on_epoch_start": "on_epoch_end",
    "on_train_epoch_start": "on_train_epoch_end",
    "on_before_dataloader": "on_after_dataloader",
    "on_train_batch_start": "on_train_batch_end",
    "on_validation_run_start": "on_validation_run_end",
    "on_validation_start": "on_validation_end",
    "on_validation_epoch_start": "on_validation_epoch_end",
    "on_validation_batch_start": "on_validation_batch_end",
    "on_test_start": "on_test_end",
    "on_test_epoch_start": "on_test_epoch_end",
    "on_test_batch_start": "on_test_batch_end",
    "on_predict_start": "on_predict_end",
    "on_predict_epoch_start": "on_predict_epoch_end",
    "on_predict_batch_start": "on_predict_batch_end",
}


class Tiny(Module):
    """One linear layer; logs its losses."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layer = nn.Linear(2, 1)

    def training_step(self, batch, batch_idx):
        loss = self.layer(batch).pow(2).mean()
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, batch_idx, dataloader_idx=0):
        self.log("val_loss", self.layer(batch).pow(2).mean())

    def test_step(self, batch, batch_idx, dataloader_idx=0):
        self.log("test_loss", self.layer(batch).pow(2).mean())

    def predict_step(self, batch, batch_idx, dataloader_idx=0):
        return self.layer(batch)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Defaulted(Module):
    """A module without steps: the default ones are made of its forward and loss."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layer = nn.Linear(2, 1)

    def forward(self, batch):
        return self.layer(batch)

    def loss(self, outputs, batch):
        return outputs.pow(2).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def kind(value: object) -> str:
    """Return how the golden lists write an argument."""
    if isinstance(value, Tensor):
        return "loss" if value.ndim == 0 else "batch"
    if isinstance(value, Optimizer):
        return "optimizer"
    if isinstance(value, BaseException):
        return type(value).__name__
    if isinstance(value, dict):
        if "state_dict" in value:
            return "checkpoint"
        return "{" + " ".join(sorted(map(str, value))) + "}"
    if isinstance(value, str) and "/" in value:
        return "path"
    return str(value)


class Recorder(Callback):
    """Writes every hook with the kinds of its arguments into a list.

    Args:
        entries: the list.
        band: when it takes its turn.
    """

    def __init__(self, entries=None, band=Band.OBSERVE, name="") -> None:
        self.entries = [] if entries is None else entries
        self.calls: list[tuple[str, tuple]] = []
        self.band = band
        self.name = name
        self.at: dict[str, object] = {}
        for hook in HOOKS:
            setattr(self, hook, self._listener(hook))

    def _listener(self, hook):
        skip = 2 if HOOKS[hook].takes_module else 1

        def listen(*args):
            self.calls.append((hook, args))
            self.add(hook, *args[skip:])
            react = self.at.get(hook)
            if react is not None:
                react(*args)

        return listen

    def add(self, hook, *args) -> None:
        """Write one entry."""
        written = f"{hook}({', '.join(map(kind, args))})" if args else hook
        self.entries.append(f"{self.name}: {written}" if self.name else written)

    def on(self, hook, react):
        """Call `react` with the hook's arguments when it fires; return this recorder."""
        self.at[hook] = react
        return self

    @property
    def names(self) -> list[str]:
        """The hooks without their arguments."""
        return [name for name, _ in self.calls]

    def count(self, hook) -> int:
        return self.names.count(hook)

    def assert_paired(self) -> None:
        """Each end hook closes the start hook that was opened last, and nothing stays open."""
        ends = {end: start for start, end in PAIRS.items()}
        opened = []
        for name in self.names:
            if name in PAIRS:
                opened.append(name)
            elif name in ends:
                assert opened, f"{name} closes nothing"
                assert opened.pop() == ends[name], f"{name} closes what is not open last"
        assert opened == []

    @property
    def state_key(self) -> str:
        return f"Recorder {self.name}"

    def state_dict(self):
        self.add("state_dict")
        return {"seen": len(self.entries)}

    def load_state_dict(self, state_dict):
        self.add("load_state_dict")


@pytest.fixture
def tiny():
    """The class of the tiny module with all steps."""
    return Tiny


@pytest.fixture
def defaulted():
    """The class of the tiny module that has no steps."""
    return Defaulted


@pytest.fixture
def recorder():
    """The class that records hooks."""
    return Recorder


@pytest.fixture
def batches():
    """A function that returns so many batches of two samples, each time the same."""

    def make(count: int, size: int = 2) -> list[Tensor]:
        generator = torch.Generator().manual_seed(0)
        return [torch.randn(size, 2, generator=generator) for _ in range(count)]

    return make


@pytest.fixture
def loader(batches):
    """A function that returns the same as a DataLoader, unshuffled."""

    def make(count: int, size: int = 2) -> DataLoader:
        return DataLoader(torch.cat(batches(count, size)), batch_size=size)

    return make
