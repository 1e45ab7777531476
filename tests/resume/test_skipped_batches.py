"""A resume skips batches cheaply where that is exact, and loads them again where it is not."""

from __future__ import annotations

import logging
import math

import numpy as np
import pytest
import torch
from samples import one_in
from torch.utils.data import DataLoader, Dataset, IterableDataset

from trainer_hooks import CombinedLoader
from trainer_hooks.data import stream as passage
from trainer_hooks.data.stream import TrainStream
from trainer_hooks.errors import DataError, TrainerHooksWarning
from trainer_hooks.runtime import rng


@pytest.fixture(autouse=True)
def as_before():
    """Leave the global random numbers as they were."""
    with rng.isolated():
        torch.manual_seed(0)
        yield


class Counted(Dataset):
    """Counts what is loaded, in this process or another."""

    __slots__ = ("loaded",)  # of what stands in no `__dict__` a resume restores nothing

    def __init__(self, count: int, *, is_noisy: bool = False) -> None:
        self.count, self.is_noisy = count, is_noisy
        self.loaded = torch.zeros(1, dtype=torch.int64).share_memory_()

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> float:
        self.loaded += 1
        return index + (float(torch.rand(())) if self.is_noisy else 0.0)


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(12))


def rows(batches) -> list:
    return [batch.tolist() if hasattr(batch, "tolist") else batch for batch in batches]


def cut(stream: TrainStream, done: int):
    """Take so many batches; return the state then and the rest."""
    iterator = stream.open(0)
    for _ in range(done):
        stream.last.keep(next(iterator))
    state = stream.state_dict()
    return state, rows(iterator)


def resume(stream: TrainStream, done: int, state) -> list:
    torch.manual_seed(99)
    return rows(stream.reopen(0, done, state))


@pytest.mark.slow
@pytest.mark.parametrize("persistent", [False, True], ids=["anew", "persistent"])
@pytest.mark.parametrize("done", one_in(3, [1, 2, 5]))
def test_workers_that_draw_nothing_load_nothing_of_what_is_behind(done, persistent):
    """With workers, at most one batch for each is loaded and dropped."""

    def make(data):
        return DataLoader(
            data, batch_size=3, shuffle=True, num_workers=2, persistent_workers=persistent
        )

    state, rest = cut(TrainStream(make(Counted(24))), done)
    again = Counted(24)
    assert resume(TrainStream(make(again)), done, state) == rest
    assert again.loaded.item() == 24 - 3 * (done - 1 - (done - 1) % 2)


@pytest.mark.slow
def test_workers_that_draw_load_again_what_is_behind(caplog):
    """Where samples are drawn at random in workers, all is loaded again, and the reason said."""

    def make(data):
        return DataLoader(data, batch_size=3, shuffle=True, num_workers=2)

    state, rest = cut(TrainStream(make(Counted(24, is_noisy=True))), 5)
    again = Counted(24, is_noisy=True)
    with caplog.at_level(logging.DEBUG, "trainer_hooks"):
        assert resume(TrainStream(make(again)), 5, state) == rest
    assert again.loaded.item() == 24
    (said,) = caplog.messages
    assert said == (
        "resuming: loading and dropping 5 batches, because its workers draw random numbers, which "
        "depend on what they loaded before"
    )


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: DataLoader(Stream()), "only by going through an iterable"),
        (lambda: CombinedLoader([range(9), range(5)]), "several loaders are combined"),
        (lambda: type("Own", (DataLoader,), {})(range(9)), "an Own may do anything"),
        (lambda: list(range(9)), "only by going through"),
    ],
    ids=["iterable", "combined", "subclass", "list"],
)
def test_why_batches_are_loaded_again_is_said(make, why, caplog):
    """What cannot be passed over by index is loaded and dropped; a log line says why."""
    state, rest = cut(TrainStream(make()), 4)
    with caplog.at_level(logging.DEBUG, "trainer_hooks"):
        assert resume(TrainStream(make()), 4, state) == rest
    (record,) = caplog.records
    assert record.levelno == logging.DEBUG
    assert "loading and dropping 4 batches, because" in record.getMessage()
    assert why.replace("an Own", "a Own") in record.getMessage()


@pytest.mark.slow
def test_a_million_batches_are_passed_over_without_loading_one(caplog):
    """At batch 1,000,000 of a cheap sampler, a resume loads the last one, to compare it."""

    def make(data):
        return DataLoader(data, batch_size=1, shuffle=True)

    done, data = 1_000_000, Counted(1_000_003)
    stream = TrainStream(make(data))
    iterator = stream.open(0)
    next(iterator)
    state = stream.state_dict()
    order = stream.loader.sampler
    torch.manual_seed(0)
    torch.empty((), dtype=torch.int64).random_()  # as the loader does for workers
    expected = list(order)[-3:]
    again = Counted(1_000_003)
    resumed = TrainStream(make(again)).reopen(0, done, state)
    assert again.loaded.item() == 1
    assert [int(batch) for batch in resumed] == expected
    assert again.loaded.item() == 4


def test_progress_is_shown_where_it_takes_long(monkeypatch, caplog):
    """After some seconds there is a line, then one at intervals, with the reason."""
    clock = iter(range(0, 1000, 1))
    monkeypatch.setattr(passage, "monotonic", lambda: next(clock))
    assert passage.skip_items(iter(range(100)), 30, "it must") == 29
    lines = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert lines[0] == (
        "resuming: loading and dropping batches, 4 of 30 done in 5 s, because it must"
    )
    assert 2 <= len(lines) <= 4


def test_passing_over_by_index_looks_at_the_clock_now_and_then(monkeypatch, caplog):
    """By index there is a line too, and the clock does not cost more than the indices."""
    asked = []
    monkeypatch.setattr(passage, "monotonic", lambda: asked.append(0) or len(asked) * 5.0)
    passage.skip_items(iter(range(10_000)), 5_000)
    assert "passing over batches, 1 of 5,000 done" in caplog.text
    assert len(asked) < 30


def test_a_handful_is_no_news(caplog):
    """A few batches are passed over without a word that anyone sees."""
    passage.skip_items(iter(range(9)), 5, "it must")
    assert caplog.records == []


class Unseeded:
    """Draws an order that nobody can know."""

    seeds = iter(range(100))

    def __iter__(self):
        return iter(np.random.default_rng(next(self.seeds)).permutation(1000).tolist())


class SizedUnseeded(Unseeded):
    def __len__(self) -> int:
        return 1000


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        Unseeded,
        SizedUnseeded,
        lambda: DataLoader(Counted(1000), sampler=SizedUnseeded()),
        lambda: DataLoader(Counted(1000), sampler=SizedUnseeded(), num_workers=1),
    ],
    ids=["iterable", "with length", "sampler", "sampler for workers"],
)
def test_what_cannot_be_found_again_is_said(make):
    """An iterable without state and unseeded is found out: one warning says what is missing."""
    state, _ = cut(TrainStream(make()), 4)
    stream = TrainStream(make())
    with pytest.warns(TrainerHooksWarning) as said:
        stream.reopen(0, 4, state)
    (warning,) = said
    text = str(warning.message)
    assert "the last batch before the cut was loaded again from <" in text
    assert "draws random numbers that no checkpoint holds" in text
    assert "give it state_dict and load_state_dict" in text


def test_workers_where_there_were_none():
    """Taken up with workers, an epoch begun without is the same only if nothing is drawn: said."""
    state, rest = cut(TrainStream(DataLoader(range(9), shuffle=True)), 4)
    stream = TrainStream(DataLoader(range(9), shuffle=True, num_workers=1))
    with pytest.warns(TrainerHooksWarning, match="num_workers was 0 and is 1: if the data set"):
        assert resume(stream, 4, state) == rest


@pytest.mark.slow
def test_as_many_workers_as_one_likes_where_they_draw_nothing():
    """Where workers drew nothing their number is free, down to none."""
    state, rest = cut(TrainStream(DataLoader(range(9), shuffle=True, num_workers=2)), 4)
    for workers in (0, 1):
        stream = TrainStream(DataLoader(range(9), shuffle=True, num_workers=workers))
        stream.require_same(state)
        assert resume(stream, 4, state) == rest


@pytest.mark.parametrize(
    "make",
    [
        lambda n: DataLoader(Counted(9, is_noisy=True), num_workers=n),
        lambda n: DataLoader(Stream(), num_workers=n),
    ],
    ids=["drawing", "stream"],
)
def test_another_number_of_workers_where_it_matters(make):
    """Where workers drew, or share a stream, their number must be the same."""
    state, _ = cut(TrainStream(make(2)), 3)
    with pytest.raises(DataError, match="num_workers was 2 and is 1"):
        TrainStream(make(1)).require_same(state)


@pytest.mark.slow
def test_workers_in_any_order_are_told():
    """Batches that come in the order in which they are ready are not found again for certain."""

    def make():
        return DataLoader(range(9), num_workers=1, in_order=False)

    state, _ = cut(TrainStream(make()), 2)
    stream = TrainStream(make())
    with pytest.warns(TrainerHooksWarning, match="in_order=True for an exact resume"):
        stream.reopen(0, 2, state)


def test_a_stream_that_ends_early_is_told_whichever_way_it_is_passed_over():
    """Fewer batches than were done are one clear error."""
    state, _ = cut(TrainStream(Unseeded()), 4)
    with pytest.raises(DataError, match="ended after 2 batches, but 4 of this epoch were done"):
        TrainStream([1, 2]).reopen(0, 4, state)
    assert math.isinf(state["num_batches"])
