"""The training batches, epoch after epoch, and the way back to one of them."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from trainer_hooks import CombinedLoader
from trainer_hooks.data.resume_checks import describe_structure
from trainer_hooks.data.stream import TrainStream
from trainer_hooks.data.workers import reproducible_iterator
from trainer_hooks.errors import DataError
from trainer_hooks.runtime import rng


@pytest.fixture(autouse=True)
def as_before():
    """Leave the global random numbers as they were."""
    with rng.isolated():
        torch.manual_seed(0)
        yield


class Counted(Dataset):
    """Twelve samples that count how often one is loaded."""

    def __init__(self) -> None:
        # no plain attribute, which a resume would restore
        self.counts: Counter[str] = Counter()

    @property
    def loaded(self) -> int:
        return self.counts["loaded"]

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> int:
        self.counts["loaded"] += 1
        return index


def rows(batches) -> list[list[int]]:
    return [batch.tolist() for batch in batches]


def cut(stream: TrainStream, done: int):
    """Take so many batches; return them, the state then, and the random numbers."""
    iterator = stream.open(0)
    taken = []
    for _ in range(done):
        taken.append(next(iterator))
        stream.last.keep(taken[-1])
    return rows(taken), stream.state_dict(), rows(iterator)


@pytest.mark.parametrize("done", [1, 2, 3, 4])
def test_a_reopened_epoch_gives_the_rest_without_loading_what_is_behind(done):
    """Batches before the cut are passed over by index: only the last is loaded, to be compared."""
    _, state, rest = cut(TrainStream(DataLoader(Counted(), batch_size=3, shuffle=True)), done)
    torch.manual_seed(99)
    again = Counted()
    stream = TrainStream(DataLoader(again, batch_size=3, shuffle=True))
    assert rows(stream.reopen(0, done, state)) == rest
    assert again.loaded == 12 - 3 * (done - 1)


def test_a_loader_of_another_class_is_passed_over_by_loading():
    """A subclass may do anything in its iterator, so its batches are loaded and dropped."""

    class Own(DataLoader):
        pass

    _, state, rest = cut(TrainStream(Own(Counted(), batch_size=3, shuffle=True)), 2)
    again = Counted()
    stream = TrainStream(Own(again, batch_size=3, shuffle=True))
    assert rows(stream.reopen(0, 2, state)) == rest
    assert again.loaded == 12


def test_hooks_between_opening_and_the_first_batch_may_draw():
    """An epoch is opened at its first batch: that random state is restored."""
    stream = TrainStream(DataLoader(Counted(), batch_size=3, shuffle=True))
    iterator = stream.open(0)
    torch.rand(5)
    next(iterator)
    state, rest = stream.state_dict(), rows(iterator)
    again = TrainStream(DataLoader(Counted(), batch_size=3, shuffle=True))
    assert rows(again.reopen(0, 1, state)) == rest


def test_the_end_of_a_loader_without_length_is_known_at_its_last_batch():
    """Batches are handed out one late, so that the number of batches is known in time."""
    stream = TrainStream(iter([1, 2, 3]))
    iterator = stream.open(0)
    lengths = []
    for _ in iterator:
        lengths.append(stream.num_batches)
    assert lengths == [math.inf, math.inf, 3]


def test_the_end_is_known_again_after_a_resume_at_it():
    """Reopened after its last batch, a loader without length has its number of batches."""

    class Three:
        def __iter__(self):
            return iter([torch.ones(1)] * 3)

    _, state, rest = cut(TrainStream(Three()), 3)
    assert (rest, state["num_batches"]) == ([], 3)
    stream = TrainStream(Three())
    assert list(stream.reopen(0, 3, state)) == []
    assert stream.num_batches == 3


def test_the_state_between_epochs_keeps_the_loaders_generators():
    """With generator= the next epoch's order follows from the last one's, resumed or not."""

    def make():
        generator = torch.Generator().manual_seed(7)
        return TrainStream(DataLoader(Counted(), batch_size=3, shuffle=True, generator=generator))

    stream = make()
    first = rows(stream.open(0))
    stream.close(is_complete=True)
    state = stream.state_dict()
    second = rows(stream.open(1))
    assert first != second
    again = make()
    again.restore_between(state)
    assert rows(again.open(1)) == second


def test_a_changed_loader_is_told_only_inside_an_epoch():
    """require_same compares known properties inside an epoch, and nothing between epochs."""
    stream = TrainStream(DataLoader(Counted(), batch_size=3))
    _, state, _ = cut(stream, 1)
    other = TrainStream(DataLoader(Counted(), batch_size=4))
    with pytest.raises(DataError, match="batch_size was 3 and is 4"):
        other.require_same(state)
    stream.close(is_complete=False)
    other.require_same(stream.state_dict())


def test_what_cannot_be_known_of_a_loader_is_not_compared():
    """A loader without known size has an empty structure, and matches any."""
    [shape] = describe_structure(iter([]))
    assert not any(shape.values())
    _, state, _ = cut(TrainStream(DataLoader(Counted(), batch_size=3)), 1)
    TrainStream(iter([])).require_same({**state, "generators": {}})


@pytest.mark.posix  # workers that are spawned cannot import this file
@pytest.mark.linux
@pytest.mark.parametrize("generator", [None, 4], ids=["global", "own"])
def test_persistent_workers_draw_the_same_in_every_epoch(generator):
    """Workers that are started once move the run's numbers on alike in each epoch, first or not."""
    own = None if generator is None else torch.Generator().manual_seed(generator)
    loader = DataLoader(
        Counted(), batch_size=3, num_workers=1, persistent_workers=True, generator=own
    )
    places = []
    for _ in range(2):
        torch.manual_seed(1)
        assert rows(reproducible_iterator(loader)) == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]
        places.append(torch.get_rng_state())
        assert loader.generator is own
    assert torch.equal(*places)
    assert own is None or torch.equal(own.get_state(), torch.Generator().manual_seed(4).get_state())
    assert loader.worker_init_fn is None


def test_a_loader_that_starts_again_draws_as_in_a_plain_loop():
    """The second round of a combined loader draws its order from the run's random numbers."""

    def draw(starts_again) -> list:
        torch.manual_seed(3)
        short = DataLoader(range(4), batch_size=1, shuffle=True)
        found = []
        for batch in starts_again(short):
            torch.rand(3)
            found.append(batch.item())
        return found

    def by_hand(short):
        for _ in range(3):
            yield from short

    combined = draw(
        lambda short: (batch for _, batch in CombinedLoader([range(12), short], "max_size_cycle"))
    )
    assert combined == draw(by_hand)
