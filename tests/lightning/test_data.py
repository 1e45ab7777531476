"""Loaders, samplers and folders as in Lightning."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from trainer_hooks import Callback, CombinedLoader
from trainer_hooks.callbacks import LearningRateMonitor, ModelCheckpoint
from trainer_hooks.data.loaders import as_eval_loaders, as_train_loader, without_shuffling
from trainer_hooks.loggers import CSVLogger, InMemoryLogger


def loader(size: int = 4, **options) -> DataLoader:
    return DataLoader(torch.arange(float(size)), **options)


def shape(batch):
    if isinstance(batch, dict):
        return {name: shape(part) for name, part in batch.items()}
    return [shape(part) for part in batch] if isinstance(batch, list) else batch.tolist()


# --- nested collections ---


def test_nested_loaders_train_together() -> None:
    """Lists and dicts of loaders, nested any way, give batches of the same shape; short ones anew.

    A list of batches in them is a loader.
    """
    listed = [torch.tensor([7.0]), torch.tensor([8.0])]
    source = {"a": [loader(2), loader(3)], "b": {"c": (loader(3),)}, "d": listed}
    found = as_train_loader(source)
    assert len(found.flattened) == 4
    assert len(found) == 3
    first, second, third = map(shape, found)
    assert first == {"a": [[0.0], [0.0]], "b": {"c": [[0.0]]}, "d": [7.0]}
    assert second == {"a": [[1.0], [1.0]], "b": {"c": [[1.0]]}, "d": [8.0]}
    assert third == {"a": [[0.0], [2.0]], "b": {"c": [[2.0]]}, "d": [7.0]}


def test_nested_loaders_are_evaluated_one_by_one() -> None:
    """In an evaluation they are taken in their order."""
    one, two, three = loader(), loader(), loader()
    assert as_eval_loaders([one, [two, {"x": three}]], "validate") == [one, two, three]
    in_turn = CombinedLoader({"a": [one], "b": two}, "sequential")
    assert as_eval_loaders(in_turn, "test") == [one, two]


def test_nested_loaders_are_changed_one_by_one() -> None:
    """What is done to each loader, as with overfit_batches, keeps the shape and the mode."""
    nested = CombinedLoader([[loader(3, shuffle=True)], loader(2)], "min_size")
    changed = without_shuffling(nested)
    assert changed.mode == "min_size"
    assert [shape(batch) for batch in changed] == [[[[0.0]], [0.0]], [[[1.0]], [1.0]]]


def test_a_fit_with_nested_loaders(Tiny, quiet_trainer) -> None:
    """The step is given the lists and dicts."""

    class NotesShapes(Tiny):
        def training_step(self, batch, batch_idx):
            seen.append(shape(batch))
            return super().training_step(torch.ones(1, 2), batch_idx)

    seen: list = []
    quiet_trainer().fit(NotesShapes(), {"a": [loader(2), loader(1)], "b": [loader(1)]})
    assert seen == [{"a": [[0.0], [0.0]], "b": [[0.0]]}, {"a": [[1.0], [0.0]], "b": [[0.0]]}]


# --- samplers ---


class Calls(list):
    """No plain attribute, which the end of the sanity check would restore."""


class Told(DistributedSampler):
    def __init__(self, size: int = 4) -> None:
        super().__init__(torch.arange(float(size)), 1, 0)
        self.epochs = Calls()

    def set_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)
        super().set_epoch(epoch)


def test_samplers_of_evaluations_know_the_epoch(Tiny, quiet_trainer, batches) -> None:
    """`set_epoch` is called for the sanity check and each validation, a test and a prediction."""

    class EvaluatesNothing(Tiny):
        def validation_step(self, batch, batch_idx):
            pass

        test_step = predict_step = validation_step

    sampler = Told()
    data = DataLoader(torch.arange(4.0), sampler=sampler)
    trainer, module = quiet_trainer(max_epochs=2, num_sanity_val_steps=2), EvaluatesNothing()
    trainer.fit(module, batches(2), data)
    assert sampler.epochs == [0, 0, 1]
    trainer.test(module, data, verbose=False)
    trainer.predict(module, data)
    assert sampler.epochs == [0, 0, 1, 2, 2]


# --- counters ---


@pytest.mark.parametrize("length", [None, 1, 2])
def test_counters_as_a_resume_starts(Tiny, quiet_trainer, batches, tmp_path, length) -> None:
    """After a checkpoint of an epoch's end, `on_train_start` sees the epoch that is next."""

    class Seen(Callback):
        def __init__(self) -> None:
            self.seen: list = []

        def on_train_start(self, trainer, module):
            self.seen.append(("train", trainer.current_epoch, trainer.clock.epochs))

        def on_train_epoch_start(self, trainer, module):
            self.seen.append(("epoch", trainer.current_epoch, trainer.clock.epochs))

        def on_iteration_end(self, trainer, module):
            self.seen.append(("iteration", trainer.current_epoch, trainer.clock.epochs))

    def run(folder, epochs, **options):
        saver, seen = ModelCheckpoint(tmp_path / folder, save_last=True), Seen()
        trainer = quiet_trainer(
            max_epochs=epochs,
            callbacks=[saver, seen],
            enable_checkpointing=None,
            iteration_length=length,
        )
        trainer.fit(Tiny(), batches(2), **options)
        return seen.seen

    whole = run("whole", 3)
    run("cut", 1)
    resumed = run("cut", 3, ckpt_path=tmp_path / "cut" / "last.ckpt")
    assert resumed[0] == ("train", 1, 1)
    assert resumed[1:] == whole[2:]


# --- folders ---


@pytest.fixture
def home(monkeypatch, tmp_path) -> Path:
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "home"


def test_a_root_in_the_home_folder(Tiny, quiet_trainer, batches, home) -> None:
    """`~` in default_root_dir, and in a logger's folder, is the home folder for all that writes."""
    trainer = quiet_trainer(default_root_dir="~/runs", logger=True, enable_checkpointing=None)
    assert trainer.default_root_dir == str(home / "runs")
    trainer.fit(Tiny(), batches(2))
    trainer = quiet_trainer(logger=CSVLogger("~/logs"))
    trainer.fit(Tiny(), batches(2))
    assert {each.name for each in home.iterdir()} == {"logs", "runs"}
    assert list(Path.cwd().iterdir()) == []


def test_a_tilde_that_is_no_home(home) -> None:
    """Only at the beginning it means that: `./~/x` is a folder in the working directory."""
    assert ModelCheckpoint(dirpath="~/x").dirpath == str(home / "x")
    assert ModelCheckpoint(dirpath="./~/x").dirpath == str(Path.cwd() / "~" / "x")


# --- what a callback remembers ---


def test_rates_of_an_optimizer_that_gets_groups(Tiny, quiet_trainer, batches) -> None:
    """Its rates from before are those of its first group, under that name alone."""

    class AddsParameterGroup(Tiny):
        def on_train_epoch_start(self):
            if self.current_epoch == 1:
                more = torch.nn.Parameter(torch.ones(1))
                self.trainer.optimizers[0].add_param_group({"params": [more]})

    monitor = LearningRateMonitor(logging_interval="epoch")
    trainer = quiet_trainer(max_epochs=3, callbacks=[monitor], logger=InMemoryLogger())
    trainer.fit(AddsParameterGroup(), batches(2))
    assert {name: len(rates) for name, rates in monitor.lrs.items()} == {
        "lr-SGD/pg1": 3,
        "lr-SGD/pg2": 1,
    }
