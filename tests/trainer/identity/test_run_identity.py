"""A training finds its own checkpoints, among those of its process and of other runs."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from new_processes import forget_trainings
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    Dataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
)

from trainer_hooks import DataModule, Run, Trainer
from trainer_hooks.callbacks import ModelCheckpoint
from trainer_hooks.checkpoint.file import summarize
from trainer_hooks.errors import CheckpointNotFoundError, OptionError, TrainerHooksWarning
from trainer_hooks.loggers import CSVLogger
from trainer_hooks.trainer.identity.data_digest import data_digest

X = torch.arange(24.0).reshape(12, 2) / 10
UNSEEDED = 2**40
"""A seed as torch draws it in a process without one: greater than any that a user gives."""


@pytest.fixture
def start(tmp_path, Tiny):
    """Return a function that trains as a script would; `new=True` for a process of its own."""

    def fit(
        data=X, *, new=True, seed=UNSEEDED, module=None, ckpt_path="auto", epochs=1, folder=None,
        trainer=None, loader=None, **options,
    ) -> Trainer:  # fmt: skip
        if new:
            forget_trainings()
        torch.manual_seed(seed)
        if trainer is None:
            quiet = {
                "default_root_dir": tmp_path, "logger": False, "accelerator": "cpu",
                "plugins": False, "enable_progress_bar": False, "enable_model_summary": False,
                "log_every_n_steps": 1,
            }  # fmt: skip
            saver = ModelCheckpoint(folder, save_top_k=-1)
            trainer = Trainer(max_epochs=epochs, callbacks=[saver], **{**quiet, **options})
        loader = loader or DataLoader(TensorDataset(data), batch_size=4)
        trainer.fit(module or Module(Tiny), loader, ckpt_path=ckpt_path)
        return trainer

    return fit


def Module(kind):
    """Return a module of the class that takes a batch in a list, and can be evaluated."""

    class Evaluated(kind):
        def training_step(self, batch, batch_idx):
            return super().training_step(batch[0], batch_idx)

        def validation_step(self, batch, batch_idx):
            self.log("val_loss", self.layer(batch[0]).square().mean())

        test_step = validation_step

        def predict_step(self, batch, batch_idx):
            return self.layer(batch[0])

    return Evaluated()


def path_of(trainer: Trainer) -> str:
    """Return the checkpoint that a trainer has saved."""
    return trainer.checkpoint_callback.best_model_path


# --- in one process ---


@pytest.mark.parametrize("folder", [None, "mine"])
def test_another_trainer_of_the_process_is_another_run(start, tmp_path, folder, capsys) -> None:
    """With a new module "auto" begins anew and says nothing; with the same one it goes on."""
    folder = folder and tmp_path / folder
    first = start(folder=folder)
    second = start(new=False, folder=folder)
    assert second.ckpt_path is None
    assert second.global_step == 3
    assert "other runs" not in capsys.readouterr().out
    again = start(new=False, folder=folder, module=first.module, epochs=2)
    assert again.ckpt_path == path_of(first)
    last = start(new=False, folder=folder, module=second.module, epochs=2)
    assert last.ckpt_path == path_of(second)


def test_the_same_trainer_with_another_module_begins_anew(start) -> None:
    """Folds that share a trainer are trainings of their own; "last" is that of the trainer."""
    trainer = start()
    first = path_of(trainer)
    start(new=False, trainer=trainer)
    assert trainer.ckpt_path is None
    trainer.max_epochs = 2
    second = trainer.checkpoint_callback.best_model_path
    assert second != first
    start(new=False, trainer=trainer, ckpt_path="last")
    assert trainer.ckpt_path == second


def test_who_starts_a_broken_training_again_is_told(start, Tiny, capsys) -> None:
    """In a notebook the cell is executed again, with a new module: a line says how to go on."""

    class Breaks(type(Module(Tiny))):
        def on_train_epoch_start(self):
            if self.current_epoch == 1:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        start(module=Breaks(), epochs=2)
    assert start(new=False, module=Breaks()).ckpt_path is None
    told = capsys.readouterr().out
    assert "a new training. All checkpoints here (1) are of other runs" in told
    assert "another training of this process saved it" in told
    assert "ckpt_path='" in told.partition("To resume it all the same:")[2]


def test_branches_from_one_file(start) -> None:
    """Two trainings that go on from the same file are two, and each finds its own end."""
    base = path_of(start())
    branches = [start(new=False, ckpt_path=base, epochs=2) for _ in range(2)]
    assert path_of(branches[0]) != path_of(branches[1])
    for branch in branches:
        again = start(new=False, module=branch.module, epochs=3)
        assert again.ckpt_path == path_of(branch)


# --- in a process of its own ---


def named(name, version=None):
    return lambda root: {"logger": CSVLogger(root / "logs", name=name, version=version)}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (named("a", "x"), named("a", "y")),
        (named("a", 3), named("a", 4)),
        (named("a"), named("b")),
        (named("a"), lambda root: {"logger": CSVLogger(root / "more", name="a")}),
        (lambda root: {"folder": root / "a"}, lambda root: {"folder": root / "b"}),
        (
            lambda root: {"default_root_dir": root / "a", **named("a")(root)},
            lambda root: {"default_root_dir": root / "b", **named("a")(root)},
        ),
        (lambda root: {"default_root_dir": root / "a"}, lambda root: {"default_root_dir": root}),
    ],
    ids=["version", "number", "name", "save_dir", "dirpath", "root beside the logger", "root"],
)
def test_what_the_user_gave_is_part_of_the_run(start, tmp_path, one, other) -> None:
    """Another version, name or folder is another run, and the same one is found again."""
    first = start(**one(tmp_path))
    assert start(**other(tmp_path)).ckpt_path is None
    assert start(**one(tmp_path), epochs=2).ckpt_path == path_of(first)
    assert start(**other(tmp_path), epochs=2).ckpt_path is not None


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ({"seed": 1}, {"seed": 2}, "its seed was 1, here it is 2"),
        ({"seed": 1}, {}, "its seed was 1, here there is none"),
        ({}, {"seed": 2}, "its training had no seed, here it is 2"),
        ({"seed": 1}, {"seed": 1, "data": X + 1}, "its loaders held other data"),
        ({}, {"data": X + 1}, "its loaders held other data"),
    ],
)
def test_another_seed_or_other_data(start, before, after, reason, capsys) -> None:
    """A new training begins, and a line says why, and how to tell runs apart or to go on."""
    first = start(**before)
    capsys.readouterr()
    assert start(**after).ckpt_path is None
    told = capsys.readouterr().out
    assert f"the newest is {path_of(first)!r}, and {reason}. Give each run its own" in told
    assert start(**before, epochs=2).ckpt_path == path_of(first)


def test_folds_without_a_seed_are_told_by_their_data(start) -> None:
    """In whatever order they come, and whichever are left out, each finds its own."""
    first, second = start(X), start(X + 1, new=False)
    assert start(X + 2).ckpt_path is None
    assert start(X + 1, epochs=2).ckpt_path == path_of(second)
    assert start(X, epochs=2).ckpt_path == path_of(first)


def test_a_data_modules_hyperparameters_are_part_of_the_run(start) -> None:
    """A fold in the data module tells folds apart; the number of workers does not."""

    class Folds(DataModule):
        def __init__(self, fold, num_workers=0):
            super().__init__()
            self.save_hyperparameters()

        def train_dataloader(self):
            return DataLoader(TensorDataset(X[self.hparams.fold :]), batch_size=4)

    first = start(loader=Folds(1))
    assert start(loader=Folds(2)).ckpt_path is None
    assert start(loader=Folds(1, num_workers=1), epochs=2).ckpt_path == path_of(first)


def test_alike_trainings_are_told_by_their_order(start, caplog) -> None:
    """Of repeats that nothing else tells apart, each goes on with its own, and a line says so."""
    repeats = [start(new=number == 0) for number in range(3)]
    for number, repeat in enumerate(repeats):
        caplog.clear()
        with caplog.at_level("INFO", "trainer_hooks"):
            again = start(new=number == 0, epochs=2)
        assert again.ckpt_path == path_of(repeat)
        assert f"This is number {number + 1} of its process" in caplog.text
    assert start(new=False).ckpt_path is None


def test_more_trainings_than_before_begin_anew(start, capsys) -> None:
    """Without "auto" in the first, the second is the second of the process all the same."""
    start()
    start(ckpt_path=None)
    capsys.readouterr()
    assert start(new=False).ckpt_path is None
    assert "this is number 2 of this process" in capsys.readouterr().out


def test_a_named_folder_of_several_trainings(start, tmp_path) -> None:
    """Each finds its own there; of another command none is taken, though the folder is named."""
    options = {"folder": tmp_path / "mine"}
    first, second = start(seed=1, **options), start(seed=2, new=False, **options)
    assert start(seed=2, **options, epochs=2).ckpt_path == path_of(second)
    assert start(seed=3, **options).ckpt_path is None
    assert start(seed=1, **options, epochs=2).ckpt_path == path_of(first)


def test_a_named_folder_of_one_training(start, tmp_path, caplog) -> None:
    """It is this run's with another seed, too, as one drawn at each start; a line says so."""
    options = {"folder": tmp_path / "mine"}
    for epochs, seed in enumerate((1, 7, 5), 1):
        with caplog.at_level("INFO", "trainer_hooks"):
            trainer = start(seed=seed, epochs=epochs, **options)
    assert trainer.global_step == 9
    assert "for this run's by its folder, although its seed was 1, here it is 5" in caplog.text


def test_data_that_are_drawn_at_each_start(start, tmp_path, caplog) -> None:
    """In a named folder they are the run's, if nothing is seeded; a line says so."""
    options = {"folder": tmp_path / "mine"}
    first = start(X, **options)
    with caplog.at_level("INFO", "trainer_hooks"):
        assert start(X + 1, epochs=2, **options).ckpt_path == path_of(first)
    assert "by its folder, although its loaders held other data" in caplog.text
    assert start(X + 1, seed=3, **options).ckpt_path is None


def test_all_may_be_moved_together(start, tmp_path) -> None:
    """The folders that hold the checkpoints are found by where they lie."""
    first = start(default_root_dir=tmp_path / "a", logger=CSVLogger(tmp_path / "a" / "logs"))
    name = Path(path_of(first)).name
    (tmp_path / "a").rename(tmp_path / "b")
    moved = {"default_root_dir": tmp_path / "b", "logger": CSVLogger(tmp_path / "b" / "logs")}
    with pytest.warns(TrainerHooksWarning, match="the checkpoint's was"):
        again = start(epochs=2, **moved)
    assert Path(again.ckpt_path).name == name


@pytest.mark.parametrize("folder", [None, "mine"])
def test_loops_of_ones_own_are_told_apart_too(tmp_path, folder) -> None:
    """Of several `Run`s of a process each goes on with its own when they are started again."""

    def train(ends_at=None):
        forget_trainings()
        trained = []
        for number in range(3):
            torch.manual_seed(UNSEEDED)
            net = torch.nn.Linear(2, 1)
            saver = ModelCheckpoint(folder and tmp_path / folder, save_last=True)
            run = Run(
                net, torch.optim.SGD(net.parameters(), lr=0.1), max_epochs=2, ckpt_path="auto",
                callbacks=[saver], default_root_dir=tmp_path, logger=False, accelerator="cpu",
                plugins=False, enable_progress_bar=False, enable_model_summary=False,
            )  # fmt: skip
            trained.append(0)
            with run:
                for _ in run.epochs():
                    for batch in run.batches([torch.ones(2, 2) * number] * 3):
                        if ends_at == (number, run.progress.steps_completed):
                            raise KeyboardInterrupt
                        run.backward(net(batch).square().mean())
                        run.step()
                        trained[-1] += 1
        return trained

    with pytest.raises(KeyboardInterrupt):
        train(ends_at=(1, 4))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Run has nothing to do")
        assert train() == [0, 3, 6]


# --- the words of evaluations, and the line that names the file ---

LOADER = DataLoader(TensorDataset(X), batch_size=4)
WORDS = ("path", "last", "best")


@pytest.mark.parametrize("word", ["best", "last"])
@pytest.mark.parametrize("fn", ["validate", "test", "predict"])
def test_a_trainer_that_never_trained_is_refused(start, Tiny, tmp_path, word, fn) -> None:
    """Another training of the process is not its own: the error names its file; a path is taken."""
    first = start()
    trainer = Trainer(default_root_dir=tmp_path, logger=False, accelerator="cpu",
                      enable_progress_bar=False)  # fmt: skip
    evaluate = getattr(trainer, fn)
    with pytest.raises(CheckpointNotFoundError, match="another training of this process") as caught:
        evaluate(Module(Tiny), LOADER, ckpt_path=word)
    assert f"ckpt_path={path_of(first)!r}" in str(caught.value)
    evaluate(first.module, LOADER, ckpt_path=word)
    evaluate(Module(Tiny), LOADER, ckpt_path=path_of(first))
    forget_trainings()
    evaluate(Module(Tiny), LOADER, ckpt_path=word)
    assert trainer.ckpt_path == path_of(first)


def test_an_evaluation_chooses_among_no_folds(start, Tiny, tmp_path) -> None:
    """In a process of its own nothing says which of several trainings is meant."""
    folds = [start(seed=1), start(seed=2, new=False)]
    forget_trainings()
    trainer = Trainer(default_root_dir=tmp_path, logger=False, accelerator="cpu",
                      enable_progress_bar=False)  # fmt: skip
    with pytest.raises(CheckpointNotFoundError, match="are of 2 trainings") as caught:
        trainer.validate(Module(Tiny), LOADER, ckpt_path="best")
    assert all(repr(path_of(fold)) in str(caught.value) for fold in folds)


def test_a_best_file_that_another_run_wrote_over(start, tmp_path, Tiny) -> None:
    """What the newest file calls the best must not hold another run's weights."""
    first = start(folder=tmp_path / "mine")
    best, newest = Path(path_of(first)), tmp_path / "mine" / "newest.ckpt"
    first.save_checkpoint(newest)
    other = start(new=False, ckpt_path=None, folder=tmp_path / "else")
    Path(path_of(other)).replace(best)
    with pytest.raises(CheckpointNotFoundError, match="was written over since"):
        start(folder=tmp_path / "mine", module=first.module, new=False, ckpt_path="best")


@pytest.mark.parametrize(
    ("fn", "word"),
    [
        *((fn, word) for fn in ("fit", "validate", "test", "predict") for word in WORDS),
        ("fit", "auto"),
    ],
)
def test_each_file_that_is_loaded_is_named(start, caplog, word, fn) -> None:
    """One line for each run, whatever chose the file."""
    trainer = start()
    trainer.max_epochs = 2
    path = path_of(trainer) if word == "path" else word
    caplog.clear()
    with caplog.at_level(logging.INFO, "trainer_hooks"):
        getattr(trainer, fn)(trainer.module, LOADER, ckpt_path=path)
    loaded = str(trainer.ckpt_path)
    told = [text for text in caplog.messages if Path(loaded).name in text]
    named = [text for text in told if text.startswith(("resuming from", f"{fn}: weights of"))]
    assert len(named) == 1


# --- the digest of the data ---


class Custom(Dataset):
    """A data set of the user's, with what they hold."""

    def __init__(self, **held) -> None:
        vars(self).update(held)

    def __getitem__(self, index):
        raise AssertionError("no sample is loaded")


class Frame:
    """Stands for a frame of pandas."""

    def __init__(self, cells) -> None:
        self.cells = cells

    def to_numpy(self):
        return np.array(self.cells, dtype=object)


def over(dataset, **options):
    return DataLoader(dataset, batch_size=2, **options)


def quantized(value):
    return torch.quantize_per_tensor(torch.full((3,), value), 0.1, 0, torch.qint8)


def nested(value):
    return torch.nested.nested_tensor([X[0], torch.full((2,), value)], layout=torch.jagged)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda: over(TensorDataset(X)), lambda: over(TensorDataset(X + 1))),
        (lambda: over(TensorDataset(X)), lambda: over(TensorDataset(X.double()))),
        (lambda: over(TensorDataset(X.t())), lambda: over(TensorDataset(X.t() + 1))),
        (lambda: over(Subset([1], [0, 1])), lambda: over(Subset([1], [0, 2]))),
        (
            lambda: over(Subset([1], list(range(10**6)))),
            lambda: over(Subset([1], [*range(10**6 - 1), -1])),
        ),
        (
            lambda: over(Custom(files=[str(n) for n in range(10**5)])),
            lambda: over(Custom(files=[str(n) for n in range(10**5 + 1)])),
        ),
        (
            lambda: over(X, sampler=SubsetRandomSampler([1, 2])),
            lambda: over(X, sampler=SubsetRandomSampler([1, 3])),
        ),
        (
            lambda: over(ConcatDataset([TensorDataset(X), TensorDataset(X)])),
            lambda: over(ConcatDataset([TensorDataset(X), TensorDataset(-X)])),
        ),
        (lambda: over(Custom(x=np.arange(3))), lambda: over(Custom(x=np.arange(3) + 1))),
        (lambda: over(Custom(files=["a/x"])), lambda: over(Custom(files=["a/y"]))),
        (lambda: over(Custom(part=1)), lambda: over(Custom(part=2))),
        (lambda: over(Custom(part="a")), lambda: over(Custom(part="b"))),
        (lambda: over(Custom(f=Frame([["a", 1]]))), lambda: over(Custom(f=Frame([["b", 1]])))),
        (lambda: [X], lambda: [X + 1]),
        (lambda: [X[:1][:, 1]], lambda: [X[1:2][:, 1]]),
        (lambda: [quantized(1.0)], lambda: [quantized(2.0)]),
        (lambda: [nested(1.0)], lambda: [nested(2.0)]),
        (lambda: {"a": over(TensorDataset(X))}, lambda: {"b": over(TensorDataset(X))}),
        (lambda: [torch.zeros(2**25)], lambda: [torch.ones(2**25)]),
    ],
)
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
def test_other_data_have_another_digest(one, other) -> None:
    """The same data have the same digest each time they are made, and others another one."""
    assert data_digest(one())
    assert data_digest(one()) == data_digest(one())
    assert data_digest(one()) != data_digest(other())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda: over(TensorDataset(X)), lambda: over(TensorDataset(X), shuffle=True)),
        (lambda: DataLoader(TensorDataset(X), 2), lambda: DataLoader(TensorDataset(X), 3)),
        (lambda: over(Custom(files=["a/x"])), lambda: over(Custom(files=["b/x"]))),
        (lambda: over(Custom(x=X, epoch=1)), lambda: over(Custom(x=X, epoch=2))),
        (lambda: over(Custom(x=X, data_dir="a")), lambda: over(Custom(x=X, data_dir="b"))),
        (lambda: over(Custom(x=X, home="/tmp/1")), lambda: over(Custom(x=X, home="/tmp/2"))),
        (lambda: over(Custom(x=X, started=0.5)), lambda: over(Custom(x=X, started=0.7))),
        (
            lambda: over(Custom(x=X, options={"num_workers": 1})),
            lambda: over(Custom(x=X, options={"num_workers": 2})),
        ),
    ],
)
def test_what_a_restart_may_change(one, other) -> None:
    """Sizes of batches, orders, folders and counters are not the data."""
    assert data_digest(one()) == data_digest(other()) != ""


def test_data_that_cannot_be_seen() -> None:
    """A loader that holds nothing in memory has no digest, which compares with none."""
    assert data_digest(iter([1]), None, over(Custom())) == ""
    meta = data_digest([torch.empty(2, device="meta")])
    assert meta == data_digest([torch.empty(2, device="meta")])


def test_the_facts_stand_in_the_file(start) -> None:
    """The end of the file tells the run, its seed, data and numbers, as a resume keeps them."""
    first = summarize(path_of(start(seed=4))).identity
    assert (first.seed, first.ordinal, first.position) == ("4", 0, 0)
    assert first.data == data_digest(DataLoader(TensorDataset(X)), None, None)
    second = summarize(path_of(start(seed=4, epochs=2))).identity
    assert second == first


def test_a_working_directory_that_was_removed(tmp_path, monkeypatch) -> None:
    """Without a folder to write to the Trainer says what to pass."""
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    with pytest.raises(OptionError, match="the working directory, which somebody has removed"):
        Trainer(accelerator="cpu")
