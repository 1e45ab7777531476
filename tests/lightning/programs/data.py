"""Loaders: several of them, collections, CombinedLoader, sizes, samplers."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from programs import differs, error

NO_LENGTH = "`trainer.num_training_batches` of a loader without a length, after the fit"


def _seen(x: Any, loaders: Any, verb: str = "fit", **options: Any) -> dict[str, Any]:
    """Run a verb and tell what its steps were given."""
    seen: list[Any] = []

    class Net(x.Net):
        def training_step(self, batch, batch_idx):
            seen.append([_short(batch), batch_idx])
            return self.cost(torch.ones(1, 2))

        def validation_step(self, batch, batch_idx, dataloader_idx=0):
            seen.append([_short(batch), batch_idx, dataloader_idx])

        def predict_step(self, batch, batch_idx, dataloader_idx=0):
            seen.append([_short(batch), batch_idx, dataloader_idx])
            return batch_idx

    trainer = x.trainer(**options)
    arguments = {"verbose": False} if verb == "validate" else {}
    returned = getattr(trainer, verb)(Net(), loaders, **arguments)
    counts = {
        "fit": trainer.num_training_batches, "validate": trainer.num_val_batches,
        "predict": trainer.num_predict_batches,
    }  # fmt: skip
    return {"seen": seen, "returned": returned, "count": counts[verb]}


def _short(batch: Any) -> Any:
    """Return of each tensor its first number, in the batch's own structure."""
    if isinstance(batch, torch.Tensor):
        return round(float(batch.flatten()[0]), 3)
    if isinstance(batch, dict):
        return {name: _short(item) for name, item in batch.items()}
    if isinstance(batch, list | tuple):
        return [_short(item) for item in batch]
    return batch


def _parts(x: Any) -> dict[str, Any]:
    return {"a": x.loader(3, shift=1.0), "b": x.loader(2, shift=5.0)}


def a_dict_of_training_loaders(x):
    """The shorter one is gone through again."""
    return _seen(x, _parts(x))


def a_list_of_training_loaders(x):
    """A batch is a list of their batches."""
    return _seen(x, list(_parts(x).values()))


def nested_training_loaders(x):
    """Collections in collections."""
    return _seen(x, {"a": [x.loader(1), x.loader(2)], "b": {"c": x.loader(3)}})


def combined_min_size(x):
    """`CombinedLoader` that ends with the shortest."""
    return _seen(x, x.CombinedLoader(_parts(x), mode="min_size"))


def combined_max_size(x):
    """`CombinedLoader` that ends with the longest, with None for the others."""
    return _seen(x, x.CombinedLoader(_parts(x), mode="max_size"))


def combined_max_size_cycle(x):
    """`CombinedLoader` that goes through the shorter ones again."""
    return _seen(x, x.CombinedLoader(_parts(x), mode="max_size_cycle"))


def combined_sequential(x):
    """`CombinedLoader` in which one follows another, in a prediction."""
    loaders = x.CombinedLoader(list(_parts(x).values()), mode="sequential")
    return _seen(x, loaders, "predict")


@differs(
    '`CombinedLoader(mode="sequential")` in training',
    error=(error("ValueError"), "none"),
)
def combined_sequential_in_training(x):
    """Training one loader after another."""
    loaders = x.CombinedLoader(list(_parts(x).values()), mode="sequential")
    return {"error": x.error(lambda: _seen(x, loaders))}


@differs(
    "`trainer.num_val_batches` of a `CombinedLoader`",
    count=([3, 2], [3]),
)
def combined_in_validation(x):
    """`CombinedLoader` in a validation: batches of all at once."""
    return _seen(x, x.CombinedLoader(_parts(x), mode="max_size"), "validate")


@differs(
    '`CombinedLoader(mode="min_size")` of loaders of which one has no length',
    length=("none", error("TypeError")),
    count=(3, "inf"),
    validations=(0, 2),
    interval=("none", error("ValueError")),
)
def combined_with_a_loader_without_length(x):
    """The loader without a length is the shorter one."""

    def fit(**options):
        seen = {"validations": 0, "steps": 0}

        class Net(x.Net):
            def on_train_start(self):
                seen["count"] = self.trainer.num_training_batches

            def training_step(self, batch, batch_idx):
                seen["steps"] += 1
                return self.cost(batch[0])

            def validation_step(self, batch, batch_idx):
                seen["validations"] += 1

        loaders = x.CombinedLoader([x.loader(3), _iter_only(x)], mode="min_size")
        x.trainer(max_epochs=2, **options).fit(Net(), loaders, x.loader(1))
        return seen

    def length():
        loaders = x.CombinedLoader([x.loader(3), _iter_only(x)], mode="min_size")
        iter(loaders)
        return len(loaders)

    return {
        "length": x.error(length),
        "interval": x.error(lambda: fit(val_check_interval=0.5)),
        "limit": x.error(lambda: fit(limit_train_batches=0.5)),
    } | fit()


def combined_lengths(x):
    """The length in each mode, and an unknown mode."""

    def length(mode):
        loader = x.CombinedLoader(_parts(x), mode=mode)
        iter(loader)
        return len(loader)

    return {
        mode: length(mode) for mode in ("min_size", "max_size", "max_size_cycle", "sequential")
    } | {"unknown": x.error(lambda: x.CombinedLoader(_parts(x), mode="odd"))}


@differs(
    "Going through a `CombinedLoader` yourself",
    length=(3, 1),
)
def combined_by_hand(x):
    """What going through it gives."""
    loader = x.CombinedLoader({"a": [1, 2]}, mode="min_size")
    first = next(iter(loader))
    return {"length": len(first)}


def several_validation_loaders(x):
    """One after another, each with its limit."""
    return _seen(x, list(_parts(x).values()), "validate", limit_val_batches=2)


def a_dict_of_validation_loaders(x):
    """Validation loaders in a dict."""
    return _seen(x, _parts(x), "validate")


@differs(
    "A list of batches (tensors, or lists of them) where loaders are passed",
    seen=([[0, 0, 0], [1, 1, 0], [2, 0, 1], [3, 1, 1]], [[[0, 1], 0, 0], [[2, 3], 1, 0]]),
    returned=([[0, 1], [0, 1]], [0, 1]),
    count=([2, 2], [2]),
)
def plain_lists_as_loaders(x):
    """Lists of lists in a prediction."""
    return _seen(x, [[0, 1], [2, 3]], "predict")


@differs(NO_LENGTH, count=("inf", 2))
def a_generator_function(x):
    """Any object with `__iter__` is a loader, and may have no length."""

    class Endless:
        def __iter__(self):
            return iter([torch.ones(2, 2), torch.zeros(2, 2)])

    return _seen(x, Endless())


@differs(NO_LENGTH, count=("inf", 3))
def iterable_dataset(x):
    """Without a length the epoch ends with the data."""

    class Stream(IterableDataset):
        def __iter__(self):
            return iter([torch.ones(2) * i for i in range(5)])

    return _seen(x, DataLoader(Stream(), batch_size=2), max_epochs=2)


def iterable_dataset_with_a_share(x):
    """A share of an unknown number is refused."""

    class Stream(IterableDataset):
        def __iter__(self):
            return iter([torch.ones(2) * i for i in range(5)])

    loader = DataLoader(Stream(), batch_size=2)
    return {
        "error": x.error(lambda: _seen(x, loader, limit_train_batches=0.5)),
        "interval": x.error(
            lambda: x.trainer(val_check_interval=0.5).fit(x.Net(), loader, x.loader(1))
        ),
        "number": _seen(x, loader, limit_train_batches=2),
    }


def structures_of_batches(x):
    """Batches that are dicts and tuples reach the step as they are."""

    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, index):
            return {"x": torch.ones(2) * index, "y": (index, str(index))}

    return _seen(x, DataLoader(Rows(), batch_size=2))


def shuffled_sampler_epochs(x):
    """A sampler's `set_epoch` is told each epoch, for training and validation."""
    seen = []

    class Sampler(torch.utils.data.SequentialSampler):
        def __init__(self, data, name):
            super().__init__(data)
            self.name = name

        def set_epoch(self, epoch):
            seen.append([self.name, epoch])

    rows = x.loader(2).dataset
    train, val = (DataLoader(rows, sampler=Sampler(rows, name)) for name in ("train", "val"))
    x.trainer(max_epochs=2).fit(x.Net(), train, val)
    return {name: [epoch for n, epoch in seen if n == name] for name in ("train", "val")}


@differs(
    "`trainer.val_dataloaders`, `test_dataloaders` ... after a run",
    after=(True, False),
)
def loaders_that_can_be_read(x):
    """What was passed can be read in the run."""
    train, val = x.loader(1), [x.loader(1), x.loader(1)]
    seen = []

    class Net(x.Net):
        def on_train_start(self):
            seen.append(self.trainer.train_dataloader is train)
            seen.append(self.trainer.val_dataloaders == val)

    trainer = x.trainer()
    trainer.fit(Net(), train, val)
    return {"seen": seen, "after": trainer.val_dataloaders == val}


@differs(
    "A list of batches (tensors, or lists of them) where loaders are passed",
    batches=([1, 1, 1, 1], [4]),
)
def a_list_of_tensors(x):
    """Tensors in a list."""
    found = _seen(x, [torch.ones(1, 2)] * 4, "predict")
    returned = found["returned"]
    lengths = [len(one) for one in returned] if isinstance(returned[0], list) else [len(returned)]
    return {"batches": lengths}


@differs("A training batch that is None", ends=([0, 1, 2, 3], [0, 2, 3]))
def a_batch_that_is_none(x):
    """A collate function that drops a batch."""
    steps, ends = [], []

    class Net(x.Net):
        def training_step(self, batch, batch_idx):
            steps.append(batch_idx)
            return self.cost(batch)

        def on_train_batch_end(self, outputs, batch, batch_idx):
            ends.append(batch_idx)

    def collate(samples):
        return None if samples[0][0] == x.loader().dataset[2][0] else torch.stack(samples)

    module = Net()
    x.trainer().fit(module, DataLoader(x.loader().dataset, batch_size=2, collate_fn=collate))
    return {"steps": steps, "ends": ends, "weights": x.weights(module)}


@differs(
    "A loader without batches; a limit of 0 in `validate`, `test` and `predict`",
    train=("none", error("DataError")),
    validate=("none", error("DataError")),
)
def an_empty_loader(x):
    """A loader without a batch."""
    empty = DataLoader([])
    hooks = x.hooks("on_train_start", "on_train_epoch_start", "on_validation_start")
    return {
        "train": x.error(lambda: x.trainer(hooks).fit(x.Net(), empty)),
        "calls": hooks.calls,
        "validate": x.error(lambda: x.trainer().validate(x.Net(), empty, verbose=False)),
    }


def last_batch_is_known(x):
    """`trainer.is_last_batch` with and without a known length."""
    seen = []

    class Net(x.Net):
        def training_step(self, batch, batch_idx):
            seen.append(self.trainer.is_last_batch)
            return self.cost(batch)

    x.trainer().fit(Net(), x.loader(3))
    x.trainer(limit_train_batches=2).fit(Net(), x.loader(3))
    x.trainer().fit(Net(), _iter_only(x))
    return {"seen": seen}


def _iter_only(x: Any) -> Any:
    class Stream(IterableDataset):
        def __iter__(self):
            return iter([torch.ones(2) * i for i in range(4)])

    return DataLoader(Stream(), batch_size=2)


@differs("`set_epoch` of a batch sampler of your own", epochs=([], [0, 1]))
def batch_sampler_epochs(x):
    """Whether the `set_epoch` of a batch sampler of one's own is called."""
    seen = []

    class Batches:
        def __iter__(self):
            return iter([[0], [1]])

        def __len__(self):
            return 2

        def set_epoch(self, epoch):
            seen.append(epoch)

    loader = DataLoader(x.loader(2).dataset, batch_sampler=Batches())
    x.trainer(max_epochs=2).fit(x.Net(), loader)
    return {"epochs": seen}
