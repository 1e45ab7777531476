from __future__ import annotations

import random

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, TensorDataset

from trainer_hooks import Module
from trainer_hooks.callbacks import BasePredictionWriter, WriteInterval
from trainer_hooks.errors import CallbackError, OptionError, TrainerHooksWarning, UsageError

DATA = TensorDataset(torch.arange(100.0, 111.0))
"""Eleven samples; a sample's index is its value less 100."""


class Echo(Module):
    """Predicts what it is given."""

    def predict_step(self, batch, batch_idx, dataloader_idx=0):
        return batch[0]


class Writer(BasePredictionWriter):
    """Notes what it is to write."""

    def __init__(self, write_interval="batch"):
        super().__init__(write_interval)
        self.batches = []
        self.epochs = []

    def write_on_batch_end(
        self, trainer, pl_module, prediction, batch_indices, batch, batch_idx, dataloader_idx
    ):
        self.batches.append((prediction.tolist(), batch_indices, batch_idx, dataloader_idx))

    def write_on_epoch_end(self, trainer, pl_module, predictions, batch_indices):
        self.epochs.append((predictions, batch_indices))


@pytest.mark.parametrize("value", ["both", None, 1, "Batch"])
def test_bad_option(value):
    """An interval that is none is an OptionError that lists them."""
    with pytest.raises(OptionError, match=f"write_interval {value!r} of Writer.*batch_and_epoch"):
        Writer(value)


@pytest.mark.parametrize(
    ("interval", "missing"),
    [("batch", "write_on_batch_end"), ("epoch", "write_on_epoch_end")],
)
def test_without_the_method(interval, missing):
    """A writer that does not define what is to be called is refused when it is made."""
    with pytest.raises(CallbackError, match=rf"write_interval='{interval}'\) has no {missing}"):
        BasePredictionWriter(interval)


def test_the_interval():
    """Intervals are Lightning's, and can be given as such."""
    assert Writer(WriteInterval.EPOCH).interval is WriteInterval.EPOCH
    assert [(i.on_batch, i.on_epoch) for i in WriteInterval] == [
        (True, False),
        (False, True),
        (True, True),
    ]


class Odd:
    """A batch sampler of one's own: three batches of different sizes, drawn at random."""

    def __iter__(self):
        numbers = list(range(11))
        random.shuffle(numbers)
        yield numbers[:2]
        yield numbers[2:7]
        yield tuple(numbers[7:])

    def __len__(self):
        return 3


class Subclass(DataLoader):
    """A loader that only its own class can make."""


LOADERS = {
    "in order": lambda: DataLoader(DATA, 4),
    "shuffled": lambda: DataLoader(DATA, 4, shuffle=True),
    "dropped": lambda: DataLoader(DATA, 4, shuffle=True, drop_last=True),
    "a sampler": lambda: DataLoader(DATA, 4, sampler=RandomSampler(DATA, replacement=True)),
    "a batch sampler": lambda: DataLoader(DATA, batch_sampler=Odd()),
    "no batching": lambda: DataLoader(DATA, batch_size=None, shuffle=True),
    "lists as samples": lambda: DataLoader(
        DATA, batch_size=None, sampler=BatchSampler(RandomSampler(DATA), 3, drop_last=False)
    ),
    "workers": lambda: DataLoader(DATA, 2, shuffle=True, num_workers=2),
    "persistent workers": lambda: DataLoader(
        DATA, 2, shuffle=True, num_workers=1, persistent_workers=True
    ),
    "a subclass": lambda: Subclass(DATA, 4, shuffle=True),
}


@pytest.mark.parametrize("kind", LOADERS)
def test_the_indices_are_those_of_the_samples(bare, kind):
    """Whatever chooses the samples, the indices lead to them, in two predictions in a row."""
    writer = Writer()
    trainer, loader = bare(writer), LOADERS[kind]()
    for _ in range(2):
        writer.batches.clear()
        trainer.predict(Echo(), loader, return_predictions=False)
        assert len(writer.batches) == len(loader)
        for number, (prediction, indices, batch_idx, dataloader_idx) in enumerate(writer.batches):
            values = prediction if isinstance(prediction, list) else [prediction]
            assert values == [100.0 + index for index in indices]
            assert (batch_idx, dataloader_idx) == (number, 0)


def test_the_writer_changes_nothing(bare):
    """The batches are those that come without it, and random numbers end where they would."""
    seen = []
    for callbacks in ((), (Writer(),)):
        torch.manual_seed(3)
        found = bare(*callbacks).predict(Echo(), DataLoader(DATA, 4, shuffle=True))
        seen.append((torch.cat(found).tolist(), torch.rand(2).tolist()))
    assert seen[0] == seen[1]


def test_a_limit(bare):
    """Batches that are loaded ahead and not run do not shift the indices."""
    writer = Writer()
    loader = DataLoader(DATA, 2, shuffle=True, num_workers=2)
    bare(writer, limit_predict_batches=2).predict(Echo(), loader)
    assert [p for p, *_ in writer.batches] == [[100.0 + i for i in w[1]] for w in writer.batches]
    assert len(writer.batches) == 2


class Stream(IterableDataset):
    def __iter__(self):
        yield from torch.arange(4.0)


@pytest.mark.parametrize(
    "loader", [[[torch.ones(2)]], DataLoader(Stream(), 2)], ids=["a list", "an iterable"]
)
def test_samples_without_indices(bare, loader):
    """Where samples have no indices, None is given, and one warning says why."""
    writer = Writer()
    with pytest.warns(TrainerHooksWarning, match="batch_indices is None") as warned:
        bare(writer).predict(Echo(), loader)
    assert len(warned) == 1
    assert {indices for _, indices, *_ in writer.batches} == {None}


def test_all_at_the_end(bare):
    """At the end one loader's predictions come in a list, the indices in a list by loader."""
    writer = Writer("epoch")
    result = bare(writer).predict(Echo(), DataLoader(DATA, 8), return_predictions=False)
    assert result is None
    assert writer.batches == []
    ((predictions, indices),) = writer.epochs
    assert torch.cat(predictions).tolist() == DATA.tensors[0].tolist()
    assert indices == [[[0, 1, 2, 3, 4, 5, 6, 7], [8, 9, 10]]]


def test_several_loaders(bare):
    """Of several loaders there is a list for each, an empty one where nothing was run."""
    writer = Writer("batch_and_epoch")
    empty = DataLoader(TensorDataset(torch.ones(0)), 8)
    with pytest.warns(TrainerHooksWarning, match="has no batch"):
        bare(writer).predict(Echo(), [DataLoader(DATA, 8), DataLoader(DATA, 11), empty])
    assert [about[2:] for about in writer.batches] == [(0, 0), (1, 0), (0, 1)]
    ((predictions, indices),) = writer.epochs
    assert [len(each) for each in predictions] == [2, 1, 0]
    assert indices == [[list(range(8)), [8, 9, 10]], [list(range(11))], []]


def test_nothing_is_kept(bare):
    """Batches that were written are let go of, and so is everything after the run."""
    kept = []

    class Looking(Writer):
        def on_predict_end(self, trainer, module):
            kept.append(len(self._predictions))

    for interval in ("batch", "epoch"):
        writer = Looking(interval)
        bare(writer).predict(Echo(), DataLoader(DATA, 4), return_predictions=False)
        assert writer._predictions == writer._indices == []
    assert kept == [0, 1]


def test_the_verb_outside_of_a_prediction(bare, Tiny, batches):
    """Indices can be asked for in a prediction only."""
    module = Tiny()
    module.on_fit_start = lambda: module.trainer.note_batch_indices()
    with pytest.raises(UsageError, match="called in fit"):
        bare().fit(module, batches())
    with pytest.raises(UsageError, match="called in no run"):
        bare().note_batch_indices()
