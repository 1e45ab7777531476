"""Modules that went through `torch.compile`."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING, Any

import pytest
import torch

from trainer_hooks import Callback, Module
from trainer_hooks.callbacks import ModelCheckpoint
from trainer_hooks.errors import ModuleError
from trainer_hooks.testing import TinyModule

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor that is not a leaf"  # torch's compiler, of itself
)

DATA = [torch.tensor([[float(n), 1.0]]) for n in range(4)]


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    """Forget what other tests compiled: there is a limit to it for each function."""
    torch.compiler.reset()
    yield
    torch.compiler.reset()


class Counting:
    """A backend that counts its graphs, and runs them as they are."""

    def __init__(self) -> None:
        self.graphs = 0
        self.calls = 0

    def __call__(self, graph: Any, inputs: Any) -> Any:
        self.graphs += 1

        def run(*arguments: Any) -> Any:
            self.calls += 1
            return graph.forward(*arguments)

        return run


class LogsInEachStage(Module):
    """Steps of its own that log, and hooks that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
        torch.nn.init.ones_(self.layer.weight)
        torch.nn.init.zeros_(self.layer.bias)
        self.ended = 0

    def forward(self, batch):
        return self.layer(batch)

    def training_step(self, batch, batch_idx):
        loss = self(batch).square().mean()
        self.log("loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self(batch).square().mean())

    test_step = validation_step

    def predict_step(self, batch, batch_idx):
        return self(batch)

    def on_train_epoch_end(self):
        self.ended += 1

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


@pytest.mark.slow
def test_all_entry_points_run_it_compiled(bare) -> None:
    """Steps go through the compiler, and come to what they come to without it."""
    plain, module, backend = LogsInEachStage(), LogsInEachStage(), Counting()
    compiled = torch.compile(module, backend=backend)
    reference, trainer = bare(max_epochs=2), bare(max_epochs=2)
    reference.fit(plain, DATA, DATA)
    trainer.fit(compiled, DATA, DATA)
    assert (backend.graphs >= 2, backend.calls >= 16) == (True, True)
    assert trainer.module is module
    assert module.ended == 2
    assert trainer.callback_metrics["loss"] == reference.callback_metrics["loss"]
    assert torch.equal(module.layer.weight, plain.layer.weight)
    for run in ("validate", "test"):
        before = backend.calls
        found = getattr(trainer, run)(compiled, DATA, verbose=False)
        assert found == getattr(reference, run)(plain, DATA, verbose=False)
        assert backend.calls >= before + 4
    before = backend.calls
    assert trainer.predict(dataloaders=DATA) == reference.predict(plain, DATA)  # the last one
    assert backend.calls >= before + 4


@pytest.mark.parametrize("by", ["deepcopy", "pickle"])
def test_a_copy_made_in_a_run_logs_by_itself(by, bare) -> None:
    """A callback's copy has its own methods, and none of the module that was compiled."""
    copies = []

    class Copy(Callback):
        def on_train_epoch_end(self, trainer, module):
            copies.append(
                copy.deepcopy(module) if by == "deepcopy" else pickle.loads(pickle.dumps(module))
            )

    module = LogsInEachStage()
    bare(Copy()).fit(torch.compile(module, backend="eager"), DATA)
    (twin,) = copies
    torch.nn.init.zeros_(twin.layer.weight)
    torch.nn.init.zeros_(twin.layer.bias)
    assert bare().validate(twin, DATA, verbose=False) == [{"val_loss": 0.0}]


@pytest.mark.slow
def test_the_module_is_left_as_it_was(bare) -> None:
    """After a run nothing of the compiler is on it."""
    module = LogsInEachStage()
    names = set(vars(module))
    bare().fit(torch.compile(module, backend="eager"), DATA)
    assert {name for name in set(vars(module)) - names if not name.startswith("_")} == set()


def test_checkpoints_have_the_modules_own_names(bare, tmp_path: Path) -> None:
    """A compiled run goes on uncompiled, and the other way round, as one run."""
    whole = bare(max_epochs=3)
    whole.fit(LogsInEachStage(), DATA)

    def go(module, epochs):
        trainer = bare(
            ModelCheckpoint(tmp_path, save_top_k=-1), max_epochs=epochs, enable_checkpointing=True
        )
        trainer.fit(module, DATA, ckpt_path="auto")
        return trainer

    saved = go(
        torch.compile(LogsInEachStage(), backend="eager"), 1
    ).checkpoint_callback.best_model_path
    assert list(torch.load(saved, weights_only=True)["state_dict"]) == [
        "layer.weight",
        "layer.bias",
    ]
    go(LogsInEachStage(), 2)
    last = go(torch.compile(LogsInEachStage(), backend="eager"), 3)
    assert (last.current_epoch, last.global_step) == (3, 12)
    assert torch.equal(last.module.layer.weight, whole.module.layer.weight)


def test_a_second_fit_of_it_goes_on(bare) -> None:
    """The module inside is the same one, so its training goes on."""
    compiled = torch.compile(LogsInEachStage(), backend="eager")
    trainer = bare(max_epochs=1)
    trainer.fit(compiled, DATA)
    trainer.max_epochs = 2
    trainer.fit(compiled, DATA)
    assert trainer.global_step == 8


def test_a_forward_and_a_loss_are_enough(bare) -> None:
    """Of a module without steps the forward runs compiled, between its hooks."""
    backend = Counting()
    trainer = bare()
    trainer.fit(torch.compile(TinyModule(), backend=backend))
    assert backend.calls == 3 + 2
    assert trainer.global_step == 3


def test_what_is_no_module_stays_an_error(bare) -> None:
    """A compiled module of torch is refused as it is uncompiled."""
    with pytest.raises(ModuleError, match="fit was given an object of type Linear"):
        bare().fit(torch.compile(torch.nn.Linear(2, 1), backend="eager"), DATA)
