"""A trainer whose run is over holds nothing that keeps the loaders alive."""

from __future__ import annotations

import gc
import subprocess
import sys
import tempfile
import weakref
from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, RandomSampler, Sampler

from trainer_hooks import Callback, DataModule
from trainer_hooks.trainer.run.forking import ForkedRuns


class Numbers(Dataset):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((2,), float(index))


class OwnOrder(Sampler):
    """A sampler that torch does not know, so that the stream opens a copy of its loader."""

    def __len__(self) -> int:
        return 4

    def __iter__(self):
        return iter([2, 0, 3, 1])


class Source(DataModule):
    """Makes its loaders anew each time it is asked."""

    def __init__(self, made: list) -> None:
        super().__init__()
        self.made = made

    def _loader(self):
        loader = DataLoader(Numbers())
        self.made.append(weakref.ref(loader))
        return loader

    train_dataloader = val_dataloader = test_dataloader = predict_dataloader = _loader


@pytest.fixture
def module(Tiny):
    """A module that has all steps."""

    class Whole(Tiny):
        def validation_step(self, batch, batch_idx):
            self.log("val_loss", self.layer(batch).mean())

        test_step = validation_step

        def predict_step(self, batch, batch_idx):
            return self.layer(batch)

    return Whole()


class Fails(Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        raise ValueError("as it happens")


@pytest.fixture(autouse=True)
def _without_collector():
    """Nothing here waits for the garbage collector: what is let go of is gone at once."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.slow
@pytest.mark.parametrize("sampler", [RandomSampler, lambda data: OwnOrder()])
@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_is_let_go_of_when_the_fit_ends(bare, module, sampler, workers) -> None:
    """A loader that nobody else holds ends with the fit, and its workers with it."""
    data = Numbers()
    loader = DataLoader(
        data, sampler=sampler(data), num_workers=workers, persistent_workers=workers > 0
    )
    alive = weakref.ref(loader)
    trainer = bare(max_epochs=2)
    trainer.fit(module, loader, DataLoader(data))
    del loader
    assert alive() is None
    assert (trainer.num_training_batches, trainer.num_val_batches) == (4, [4])


@pytest.mark.slow
@pytest.mark.parametrize("fn", ["fit", "validate", "test", "predict"])
def test_loaders_of_a_data_module_are_let_go_of(bare, module, fn) -> None:
    """So do those that the run made by itself, whatever it was for."""
    made: list = []
    trainer = bare()
    getattr(trainer, fn)(module, datamodule=Source(made))
    assert made
    assert [loader() for loader in made] == [None] * len(made)


@pytest.mark.slow
def test_a_run_that_fails_lets_go_of_its_loaders(bare, module) -> None:
    """An exception ends a run as wholly, once nobody holds on to the exception."""
    made: list = []
    trainer = bare(Fails())
    with pytest.raises(ValueError, match="as it happens"):
        trainer.fit(module, datamodule=Source(made))
    assert [loader() for loader in made] == [None] * len(made)


@pytest.mark.slow
def test_a_checkpoint_after_the_fit_is_that_of_its_end(bare, module, tmp_path) -> None:
    """What a checkpoint holds of the loaders is kept as plain data, so a later save has it too."""

    class Saves(Callback):
        def on_fit_end(self, trainer, module):
            trainer.save_checkpoint(tmp_path / "inside.ckpt")

    data = Numbers()
    order = torch.Generator().manual_seed(3)
    trainer = bare(Saves(), max_epochs=2)
    trainer.fit(module, DataLoader(data, shuffle=True, generator=order), DataLoader(data))
    trainer.save_checkpoint(tmp_path / "after.ckpt")
    inside, after = (
        torch.load(tmp_path / name, weights_only=True)["trainer_hooks"]
        for name in ("inside.ckpt", "after.ckpt")
    )
    assert inside["stream"]["num_batches"] == 4
    for kept in ("stream", "val_generators", "evaluators", "progress", "accumulate_grad_batches"):
        assert str(after[kept]) == str(inside[kept])


_FIRST_FIT = """
import gc, weakref; gc.disable()
import torch; from torch.utils.data import DataLoader; from trainer_hooks import Module, Trainer
class Net(Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
    def training_step(self, batch, batch_idx):
        return self.layer(batch).sum()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
def trial(made):
    loader = DataLoader(torch.ones(2, 1), num_workers=1, persistent_workers=True)
    made.append(weakref.ref(loader))
    trainer = Trainer(barebones=True, max_epochs=1, accelerator="cpu")
    trainer.fit(Net(), loader, DataLoader(torch.ones(1, 1)))
made = []
for _ in range(2):
    trial(made)
assert [loader() for loader in made] == [None, None], made
"""


@pytest.mark.slow
def test_the_first_fit_of_a_process_lets_go_of_its_loaders() -> None:
    """torch imports its compiler for the first optimizer; that leaves no frame with a loader."""
    subprocess.run([sys.executable, "-W", "ignore", "-c", _FIRST_FIT], check=True, timeout=120)


def test_the_folder_of_forked_ranks_goes_with_its_object(tmp_path, monkeypatch) -> None:
    """A trainer of forked processes leaves nothing, and no warning, when it is dropped."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    runs = ForkedRuns(SimpleNamespace(), None)
    (place,) = tmp_path.iterdir()
    (place / "fit.ckpt").write_bytes(b"kept")
    assert runs.kept == place / "fit.ckpt"
    del runs
    gc.collect()
    assert list(tmp_path.iterdir()) == []
