"""Loaders: how many batches, one or several, and copies with another order."""

from __future__ import annotations

import math
from collections import UserDict

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)
from torch.utils.data.distributed import DistributedSampler

from trainer_hooks import CombinedLoader
from trainer_hooks.data.loaders import (
    apply_batch_limit,
    as_eval_loaders,
    as_train_loader,
    copy_loader,
    no_batch_message,
    number_of_batches,
    set_epoch,
    without_shuffling,
)
from trainer_hooks.errors import DataError, OptionError

numpy = pytest.importorskip("numpy")


class Stream(IterableDataset):
    """A data set without a length."""

    def __iter__(self):
        return iter(torch.arange(4.0))


class Unsized:
    """A loader that says that it has no length."""

    def __init__(self, batches=(1, 2)) -> None:
        self.batches = batches

    def __iter__(self):
        return iter(self.batches)

    def __len__(self) -> int:
        raise NotImplementedError


def loader(size: int = 4, **options) -> DataLoader:
    return DataLoader(torch.arange(float(size)), **options)


def loader_of_stream() -> DataLoader:
    """Return a loader of two batches that has no length."""
    return DataLoader(Stream(), batch_size=2)


def flat(loader) -> list[float]:
    return [value for batch in loader for value in batch.tolist()]


# --- how many ---


@pytest.mark.parametrize("limit", [0.5, 0.01, 0.99])
def test_a_share_of_an_unknown_number_is_refused(limit: float) -> None:
    """A fraction of a loader without length is an error that names the option."""
    with pytest.raises(DataError) as caught:
        apply_batch_limit(math.inf, limit, "limit_val_batches")
    for words in (f"Trainer(limit_val_batches={limit})", "no length", "limit_val_batches=100"):
        assert words in str(caught.value)


@pytest.mark.parametrize(("size", "limit"), [(10, 0.05), (1, 0.5), (3, 0.3)])
def test_a_share_that_leaves_nothing_is_refused(size: int, limit: float) -> None:
    """A share of less than one batch is refused with the least that would do."""
    with pytest.raises(DataError) as caught:
        apply_batch_limit(size, limit, "limit_val_batches")
    for words in (f"limit_val_batches={limit}", f"none of the {size}", f"{1 / size:.2g}"):
        assert words in str(caught.value)


@pytest.mark.parametrize(
    ("size", "limit", "expected"),
    [
        (10, 1.0, 10),
        (10, 1, 1),
        (10, 0, 0),
        (10, 0.0, 0),
        (10, 3, 3),
        (10, 30, 10),
        (10, 0.5, 5),
        (10, 0.19, 1),
        (0, 0.5, 0),
        (0, 5, 0),
        (math.inf, 1.0, math.inf),
        (math.inf, 7, 7),
        (math.inf, 0.0, 0),
    ],
)
def test_limits(size, limit, expected) -> None:
    """An int is a number of batches, a float a fraction, rounded down."""
    assert apply_batch_limit(size, limit, "limit_train_batches") == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ([1, 2, 3], 3),
        ([], 0),
        (loader(5, batch_size=2), 3),
        (loader(5, batch_size=2, drop_last=True), 2),
        (DataLoader(Stream()), math.inf),
        (iter([1]), math.inf),
        (Unsized(), math.inf),
        (None, math.inf),
    ],
)
def test_the_number_of_batches(source, expected) -> None:
    """The number of batches is the loader's length, or infinity without one."""
    assert number_of_batches(source) == expected


# --- one or several ---


@pytest.mark.parametrize("source", [5, 1.5, object(), "data", b"data", DataLoader])
def test_what_cannot_be_iterated_is_no_loader(source: object) -> None:
    """Something else than an iterable of batches is refused with its type."""
    for convert in (as_train_loader, lambda s: as_eval_loaders(s, "validate")):
        with pytest.raises(DataError) as caught:
            convert(source)
        assert repr(source) in str(caught.value)
        assert f"of type {type(source).__name__}" in str(caught.value)
        assert "a DataLoader or another iterable" in str(caught.value)


@pytest.mark.parametrize("wrap", [lambda x: [loader(), x], lambda x: {"a": loader(), "b": x}])
@pytest.mark.parametrize("wrong", [None, 5, "data"])
def test_one_of_several_that_cannot_be_iterated(wrap, wrong) -> None:
    """One wrong loader among several is refused, and not taken for a batch."""
    for convert in (as_train_loader, lambda s: as_eval_loaders(s, "validate")):
        with pytest.raises(DataError, match=f"loader {wrong!r} of type"):
            convert(wrap(wrong))


def test_an_empty_dict_of_loaders() -> None:
    """No loader at all is refused."""
    with pytest.raises(DataError, match="needs at least one"):
        as_train_loader({})


class Pair(tuple):
    """A batch of a type of its own."""


LISTS_OF_BATCHES = {
    "tensors": [torch.zeros(2), torch.zeros(2)],
    "pairs": [(torch.zeros(2), torch.zeros(2))],
    "lists": [[torch.zeros(2), torch.zeros(2)]],
    "dicts": [{"x": torch.zeros(2)}],
    "mappings": [UserDict(x=torch.zeros(2))],
    "arrays": [numpy.zeros(2), numpy.zeros(2)],
    "numbers": [1, 2, 3],
    "strings": ["a b", "c d"],
    "tuples of a type": [Pair((1, 2))],
    "packed": [torch.nn.utils.rnn.pack_sequence([torch.zeros(2)])],
    "nothing": [],
    "nones": [None, None],
}


@pytest.mark.parametrize("name", LISTS_OF_BATCHES)
def test_a_list_of_batches_is_one_loader(name: str) -> None:
    """A list whose items can only be batches is a loader."""
    batches = LISTS_OF_BATCHES[name]
    assert as_train_loader(batches) is batches
    [single] = as_eval_loaders(batches, "validate")
    assert single is batches


LISTS_OF_LOADERS = {
    "loaders": [loader(), loader()],
    "one loader": [loader()],
    "iterables": [Unsized(), Unsized()],
    "generators": [iter([1]), iter([2])],
    "loader and list": [loader(), [torch.zeros(2)]],
}


@pytest.mark.parametrize("name", LISTS_OF_LOADERS)
def test_a_list_of_loaders_is_several(name: str) -> None:
    """A list of loaders is combined for training, and run one after another in evaluation."""
    several = LISTS_OF_LOADERS[name]
    combined = as_train_loader(several)
    assert isinstance(combined, CombinedLoader)
    for found in (combined.flattened, as_eval_loaders(tuple(several), "test")):
        assert [id(item) for item in found] == [id(item) for item in several]


def test_loaders_one_after_another() -> None:
    """The mode `"sequential"` goes through each in turn, however nested; one may be empty."""
    combined = CombinedLoader({"a": [range(1, 3), range(0)], "b": range(3)}, "sequential")
    assert list(combined) == list(combined) == [1, 2, 0, 1, 2]
    assert len(combined) == 5
    with pytest.raises(TypeError, match="has no length"):
        len(CombinedLoader([[1], Unsized()], "sequential"))


def test_parts_without_length_or_batches() -> None:
    """The shortest ends a combination, with a length or without; one that is empty gives None."""
    assert list(CombinedLoader([[1, 2], iter([5, 6, 7])])) == [[1, 5], [2, 6]]
    assert list(CombinedLoader([[1, 2, 3], Unsized([5, 6])])) == [[1, 5], [2, 6]]
    assert list(CombinedLoader([[], [1, 2]])) == []
    assert list(CombinedLoader({"a": [], "b": [1]}, "max_size")) == [{"a": None, "b": 1}]


def test_a_dict_of_loaders() -> None:
    """A dict gives dicts of batches in training, and one loader after another in evaluation."""
    loaders = {"a": [1, 2], "b": [10, 20]}
    assert list(as_train_loader(loaders)) == [{"a": 1, "b": 10}, {"a": 2, "b": 20}]
    assert as_eval_loaders(loaders, "test") == [[1, 2], [10, 20]]


def test_a_combined_loader_stays_what_it_is() -> None:
    """One that the user built is used as it is in training."""
    combined = CombinedLoader([[1], [2]], "min_size")
    assert as_train_loader(combined) is combined
    assert as_eval_loaders(combined, "validate") == [combined]
    assert as_eval_loaders(CombinedLoader([[1], [2]], "sequential"), "test") == [[1], [2]]


# --- combined ---


def test_an_unknown_mode() -> None:
    """A mode is one of three."""
    with pytest.raises(DataError, match=r"mode='cycle'\): must be one of max_size_cycle, min_size"):
        CombinedLoader([[1]], "cycle")


@pytest.mark.parametrize("empty", [[], {}])
def test_combining_nothing(empty) -> None:
    """At least one loader is needed."""
    with pytest.raises(DataError, match="at least one"):
        CombinedLoader(empty)


def test_a_loader_that_cannot_be_repeated() -> None:
    """In a cycle a loader that gives nothing again is an error, and no batch of None."""
    for short in ([], iter([1])):
        combined = CombinedLoader({"a": {"x": [1, 2, 3], "y": short}}, "max_size_cycle")
        with pytest.raises(DataError, match=r"loader \['a'\]\['y'\] of .* gives no batch"):
            list(combined)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("max_size_cycle", [[1, 10], [2, 20], [1, 30], [2, 40], [1, 50]]),
        ("min_size", [[1, 10], [2, 20]]),
        ("max_size", [[1, 10], [2, 20], [None, 30], [None, 40], [None, 50]]),
    ],
)
@pytest.mark.parametrize("is_turned", [False, True])
def test_modes(mode: str, expected: list, is_turned: bool) -> None:
    """Each mode ends and fills up as it says, whichever loader is the longer; lengths agree."""
    loaders = [[1, 2], [10, 20, 30, 40, 50]]
    combined = CombinedLoader(loaders[::-1] if is_turned else loaders, mode)
    expected = [batch[::-1] for batch in expected] if is_turned else expected
    for _ in range(2):
        assert list(combined) == expected
    assert len(combined) == len(expected)
    named = CombinedLoader(dict(zip("ab", combined.flattened, strict=True)), mode)
    assert list(named) == [dict(zip("ab", batch, strict=True)) for batch in expected]


@pytest.mark.parametrize("mode", ["max_size_cycle", "min_size", "max_size"])
def test_loaders_of_one_length(mode: str) -> None:
    """Where all end together every mode gives the same."""
    assert list(CombinedLoader([[1, 2], [3, 4]], mode)) == [[1, 3], [2, 4]]


@pytest.mark.parametrize("mode", ["max_size_cycle", "min_size", "max_size", "sequential"])
def test_the_length_with_a_loader_without_length(mode: str) -> None:
    """In each mode such a loader may end the epoch, so that the whole has no length, nested too."""
    combined = CombinedLoader({"a": [1], "b": [[2, 3], loader_of_stream()]}, mode)
    assert number_of_batches(combined) == math.inf
    with pytest.raises(TypeError, match="has no length"):
        len(combined)
    for outer in ("max_size_cycle", "min_size", "max_size", "sequential"):
        assert number_of_batches(CombinedLoader([[1], combined], outer)) == math.inf


def test_an_endless_stream_that_gives_a_large_length_leaves_the_shortest_its_length() -> None:
    """So a labelled loader beside it has epochs of a known length."""

    class Endless(IterableDataset):
        def __iter__(self):
            return iter(int, 1)

        def __len__(self) -> int:
            return 10**9

    combined = CombinedLoader([[1, 2, 3], DataLoader(Endless(), batch_size=2)])
    assert len(combined) == len(list(combined)) == 3


# --- parts ---


def test_samplers_are_told_of_the_epoch() -> None:
    """set_epoch reaches loaders, samplers and batch samplers, each once, in combined ones too."""

    class Sampler(SequentialSampler):
        def __init__(self, data) -> None:
            super().__init__(data)
            self.epochs: list[int] = []

        def set_epoch(self, epoch: int) -> None:
            self.epochs.append(epoch)

    samplers = [Sampler(range(4)) for _ in range(3)]
    first = DataLoader(range(4), sampler=samplers[0])
    second = DataLoader(range(4), batch_sampler=BatchSampler(samplers[1], 2, drop_last=False))
    third = DataLoader(range(4), batch_sampler=samplers[2])
    set_epoch(CombinedLoader([first, second, third]), 7)
    set_epoch([1, 2], 3)
    assert [sampler.epochs for sampler in samplers] == [[7]] * 3


def collate(items: list) -> torch.Tensor:
    return torch.stack(items) * 10


def init(worker: int) -> None: ...


def test_a_copy_has_all_settings() -> None:
    """A copy differs in its sampler alone; the original stays as it was."""
    generator = torch.Generator()
    original = DataLoader(
        torch.arange(6.0),
        batch_size=4,
        shuffle=True,
        num_workers=2,
        collate_fn=collate,
        drop_last=True,
        timeout=3,
        worker_init_fn=init,
        multiprocessing_context="spawn",
        generator=generator,
        prefetch_factor=5,
        persistent_workers=True,
        in_order=False,
    )
    copy = copy_loader(original, sampler=[5, 4, 3, 2, 1, 0])
    settings = set(vars(original)) - {"sampler", "batch_sampler", "_iterator"}
    for name in sorted(settings):
        assert vars(copy)[name] is vars(original)[name], name
    assert list(copy.batch_sampler) == [[5, 4, 3, 2]]
    assert isinstance(original.sampler, RandomSampler)


def test_a_copy_with_a_batch_sampler() -> None:
    """A batch sampler takes the place of sampler, size and drop_last."""
    copy = copy_loader(loader(4, batch_size=2), batch_sampler=[[3], [1, 0]])
    assert [batch.tolist() for batch in copy] == [[3.0], [1.0, 0.0]]


# --- order ---


def test_without_shuffling_a_random_order_becomes_the_datas() -> None:
    """Samples come in their own order, and with the loader's settings otherwise."""
    shuffled = loader(7, batch_size=3, shuffle=True, drop_last=True)
    ordered = without_shuffling(shuffled)
    assert flat(ordered) == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert isinstance(shuffled.sampler, RandomSampler)


def test_without_shuffling_a_subset_stays_that_subset() -> None:
    """Samples that a subset leaves out do not come in."""
    subset = loader(8, sampler=SubsetRandomSampler([6, 2, 4]))
    ordered = without_shuffling(subset)
    assert flat(ordered) == flat(ordered) == [6.0, 2.0, 4.0]


def test_without_shuffling_combined_loaders_are_ordered_each() -> None:
    """Loaders that are combined in a list or dict are each put in order; the mode stays."""
    for loaders in ([loader(3, shuffle=True)], {"a": loader(3, shuffle=True)}):
        ordered = without_shuffling(CombinedLoader(loaders, "min_size"))
        assert ordered.mode == "min_size"
        assert type(ordered.loaders) is type(loaders)
        assert flat(ordered.flattened[0]) == [0.0, 1.0, 2.0]


@pytest.mark.parametrize(
    "source",
    [
        [1, 2],
        loader(),
        DataLoader(Stream()),
        loader(sampler=[3, 1]),
        DataLoader(torch.arange(4.0), batch_sampler=[[0, 1]]),
        loader(batch_size=None, shuffle=True),
        type("Own", (DataLoader,), {})(torch.arange(4.0), shuffle=True),
    ],
)
def test_without_shuffling_what_is_not_random_stays(source) -> None:
    """Whatever is no plain loader with a random order is handed back as it is."""
    assert without_shuffling(source) is source


def test_overfitting_takes_the_same_batches_each_epoch(Tiny, quiet_trainer) -> None:
    """overfit_batches trains and validates on the first batches in order, whatever shuffles."""
    seen: dict[str, list] = {"train": [], "val": []}

    class NotesBatches(Tiny):
        def training_step(self, batch, batch_idx):
            seen["train"].append(batch[0][:, 0].tolist())
            return super().training_step(batch[0], batch_idx)

        def validation_step(self, batch, batch_idx):
            seen["val"].append(batch[0][:, 0].tolist())

    data = TensorDataset(torch.arange(12.0).reshape(6, 2))
    shuffled = DataLoader(data, batch_size=2, shuffle=True)
    quiet_trainer(overfit_batches=2, max_epochs=2).fit(NotesBatches(), shuffled, shuffled)
    assert seen["train"] == seen["val"] == [[0.0, 2.0], [4.0, 6.0]] * 2


class Backwards(Sampler):
    """A sampler of a user's own."""

    def __init__(self, data) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self):
        return reversed(range(len(self.data)))


def test_overfitting_replaces_any_sampler_but_that_of_a_part_or_a_rank() -> None:
    """Weighted or a user's own: the first samples of the data set come, in each epoch the same."""
    data = TensorDataset(torch.arange(6.0))

    def order(sampler):
        loader = without_shuffling(DataLoader(data, batch_size=2, sampler=sampler))
        return [int(value) for batch in loader for value in batch[0]]

    assert order(WeightedRandomSampler([1.0] * 6, 6)) == list(range(6))
    assert order(Backwards(data)) == list(range(6))
    assert order(SubsetRandomSampler([4, 2, 5])) == [4, 2, 5]
    of_a_rank = DistributedSampler(data, num_replicas=2, rank=1, shuffle=False)
    assert order(of_a_rank) == [1, 3, 5]
    stream = DataLoader(RangeStream(), batch_size=2)
    assert without_shuffling(stream) is stream


class RangeStream(IterableDataset):
    def __iter__(self):
        return iter(range(4))


def test_messages_of_a_loader_that_gave_nothing() -> None:
    """An exhausted iterator has another message than a loader without data."""
    assert "only once" in no_batch_message("the loader", iter([]))
    assert "drop_last" in no_batch_message("the loader", [])


@pytest.mark.parametrize("mode", ["sequential", "max_size"])
def test_a_trainer_shows_what_a_combined_loader_was_made_of(quiet_trainer, Tiny, mode) -> None:
    """`trainer.val_dataloaders` is its `iterables`; each is run, or all as one."""
    combined, seen = CombinedLoader([[torch.ones(2, 4)], [torch.ones(2, 4)] * 2], mode), []
    module = Tiny()
    module.validation_step = lambda batch, batch_idx, dataloader_idx=0: seen.append(
        (type(batch).__name__, dataloader_idx, module.trainer.val_dataloaders is combined.iterables)
    )
    quiet_trainer().validate(module, combined, verbose=False)
    one_by_one = [("Tensor", 0, True), ("Tensor", 1, True), ("Tensor", 1, True)]
    assert seen == (one_by_one if mode == "sequential" else [("list", 0, True)] * 2)


def test_a_fit_ends_its_epochs_with_a_shorter_loader_without_length(quiet_trainer, Tiny) -> None:
    """A combined loader is then one without length: validated at its end, no share accepted."""

    def fit(**options) -> tuple[list[float], list[int]]:
        module, sizes, validated_at = Tiny(), [], []
        module.training_step = lambda batch, batch_idx: module.layer(batch[1]).sum()
        module.on_train_start = lambda: sizes.append(module.trainer.num_training_batches)
        module.validation_step = lambda batch, batch_idx: validated_at.append(module.global_step)
        loaders = CombinedLoader([[torch.ones(2, 2)] * 5, Unsized([torch.ones(2, 2)] * 2)])
        quiet_trainer(max_epochs=2, **options).fit(module, loaders, [torch.ones(2, 2)])
        return sizes, validated_at

    assert fit() == ([math.inf], [2, 4])
    assert fit(limit_train_batches=1) == ([1], [1, 2])
    assert fit(val_check_interval=1) == ([math.inf], [1, 2, 3, 4])
    with pytest.raises(OptionError, match=r"val_check_interval=0\.5\) .* has no length"):
        fit(val_check_interval=0.5)
    with pytest.raises(DataError, match=r"limit_train_batches=0\.5\) .* has no length"):
        fit(limit_train_batches=0.5)
