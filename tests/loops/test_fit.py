"""What the options of a fit do: how many batches, steps and epochs, and when it validates."""

from __future__ import annotations

import math

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SequentialSampler

from trainer_hooks import Callback, StopTraining
from trainer_hooks.callbacks import ModelCheckpoint
from trainer_hooks.errors import DataError, OptionError, TrainerHooksAdvice, TrainerHooksWarning
from trainer_hooks.loggers import CSVLogger, DummyLogger


class Counted(Callback):
    """Counts batches, and notes after how many of them validations ran."""

    def __init__(self) -> None:
        self.trained: list[int] = []
        self.validated_at: list[int] = []
        self.sanity: list[int] = []
        self.last: list[bool] = []

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.trained.append(batch_idx)
        self.last.append(trainer.is_last_batch)

    def on_validation_batch_end(self, trainer, module, outputs, batch, batch_idx, loader=0):
        if trainer.sanity_checking:
            self.sanity.append(batch_idx)

    def on_validation_end(self, trainer, module):
        if not trainer.sanity_checking:
            self.validated_at.append(trainer.progress.batches_completed)


@pytest.fixture
def counted():
    return Counted()


class Stream(IterableDataset):
    """Samples without a known number."""

    def __init__(self, count) -> None:
        self.count = count

    def __iter__(self):
        return iter(torch.ones(self.count, 2))


# --- how long ---


@pytest.mark.parametrize(
    ("options", "epochs", "batches_done", "steps"),
    [
        ({"max_epochs": 2}, 2, 8, 8),
        ({"max_epochs": 5, "max_steps": 6}, 2, 6, 6),
        ({"max_epochs": -1, "max_steps": 8}, 2, 8, 8),
        ({"max_epochs": None, "max_steps": 5}, 2, 5, 5),
        ({"max_epochs": 1, "max_steps": 100}, 1, 4, 4),
        ({"max_epochs": -1, "max_steps": 3, "accumulate_grad_batches": 3}, 2, 7, 3),
        ({"max_epochs": 2, "accumulate_grad_batches": 3}, 2, 8, 4),
        ({"limit_train_batches": 3}, 1, 3, 3),
        ({"limit_train_batches": 9}, 1, 4, 4),
        ({"limit_train_batches": 0.5}, 1, 2, 2),
        ({"limit_train_batches": 1.0}, 1, 4, 4),
    ],
)
def test_length(options, epochs, batches_done, steps, bare, tiny, batches, counted) -> None:
    """max_epochs, max_steps and limit_train_batches bound a fit; the first that is met ends it."""
    trainer = bare(counted, **options)
    trainer.fit(tiny(), batches(4))
    assert trainer.current_epoch == epochs
    assert len(counted.trained) == batches_done
    assert trainer.global_step == steps
    per_epoch = trainer.num_training_batches
    assert counted.trained == [n % per_epoch for n in range(batches_done)]
    assert counted.last == [n % per_epoch == per_epoch - 1 for n in range(batches_done)]


def test_the_number_of_epochs_by_default(bare) -> None:
    """It is 1000, or without end where something else ends the run."""
    assert bare(max_epochs=None).max_epochs == 1000
    assert bare(max_epochs=None, max_steps=3).max_epochs == -1
    assert bare(max_epochs=None, max_time="00:00:00:01").max_epochs == -1


@pytest.mark.parametrize(
    ("options", "batches_done"),
    [
        ({}, 1),
        ({"min_epochs": 1}, 4),
        ({"min_epochs": 2}, 8),
        ({"min_steps": 3}, 3),
        ({"min_steps": 6}, 6),
        ({"min_epochs": 1, "min_steps": 6}, 6),
    ],
)
def test_the_least_length(options, batches_done, bare, tiny, batches, counted) -> None:
    """A stop takes effect once min_epochs and min_steps are reached, and then at once."""
    stop = Callback()
    stop.on_train_batch_start = lambda trainer, *args: trainer.stop("early")
    trainer = bare(counted, stop, max_epochs=3, **options)
    trainer.fit(tiny(), batches(4), batches(1))
    assert len(counted.trained) == batches_done
    assert counted.validated_at == [*range(4, batches_done, 4), batches_done]


def test_a_stop_not_yet_heeded_does_not_validate(bare, tiny, batches, counted) -> None:
    """Validations keep their interval while min_epochs holds a stop back."""
    stop = Callback()
    stop.on_train_start = lambda trainer, module: trainer.stop("early")
    trainer = bare(counted, stop, max_epochs=9, min_epochs=2, val_check_interval=2)
    trainer.fit(tiny(), batches(3), batches(1))
    assert counted.validated_at == [2, 5]


def test_stop_training_does_not_wait(bare, tiny, batches, counted) -> None:
    """min_epochs holds trainer.stop() back, but not StopTraining."""

    def stop(*args):
        raise StopTraining("now")

    raising = Callback()
    raising.on_train_batch_end = stop
    bare(counted, raising, min_epochs=1, max_epochs=2).fit(tiny(), batches(4))
    assert counted.trained == [0]


def test_max_time(bare, tiny, batches, counted) -> None:
    """A fit whose time is up before it begins trains nothing; one with time left trains all."""
    bare(counted, max_time="00:00:00:00").fit(tiny(), batches(4))
    assert counted.trained == []
    bare(counted, max_time={"hours": 1}).fit(tiny(), batches(4))
    assert counted.trained == [0, 1, 2, 3]


def test_a_dry_run(bare, tiny, batches, counted, tmp_path) -> None:
    """fast_dev_run runs so many batches of everything once, and writes nothing."""
    trainer = bare(
        counted,
        ModelCheckpoint(tmp_path / "c"),
        fast_dev_run=2,
        max_epochs=7,
        logger=CSVLogger(tmp_path),
        enable_checkpointing=None,
        num_sanity_val_steps=5,
    )
    trainer.fit(tiny(), batches(4), batches(4))
    assert counted.trained == [0, 1]
    assert counted.validated_at == [2]
    assert counted.sanity == []
    assert trainer.test(dataloaders=batches(4), verbose=False)
    assert trainer.num_test_batches == [2]
    assert len(trainer.predict(dataloaders=batches(4))) == 2
    assert [type(logger) for logger in trainer.loggers] == [DummyLogger]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("limit", "expected"), [(1, 1), (9, 4), (0.5, 2), (1.0, 4), (0, 0), (0.0, 0)]
)
def test_limits_of_evaluations(limit, expected, bare, tiny, loader, counted) -> None:
    """limit_val_batches bounds each loader, by number or by share; 0 leaves validation out."""
    trainer = bare(counted, limit_val_batches=limit, num_sanity_val_steps=-1)
    trainer.fit(tiny(), loader(1), [loader(4), loader(4)])
    assert trainer.num_val_batches == [expected, expected]
    assert counted.sanity == [*range(expected)] * 2
    assert counted.validated_at == ([1] if expected else [])


@pytest.mark.parametrize("option", ["limit_train_batches", "limit_val_batches"])
def test_a_share_of_nothing(option, bare, tiny, batches) -> None:
    """A fraction that leaves no batch is an error that names a valid value."""
    with pytest.raises(DataError, match=rf"Trainer\({option}=0.1\) leaves none of the 4"):
        bare(**{option: 0.1}).fit(tiny(), batches(4), batches(4))


@pytest.mark.parametrize("limit", [2, 0.5])
def test_overfitting(limit, bare, tiny, counted) -> None:
    """overfit_batches trains and validates on the same few batches, unshuffled, each epoch."""
    seen, samplers = [], []

    class Looks(tiny):
        def training_step(self, batch, batch_idx):
            seen.append(batch.flatten().tolist())
            return super().training_step(batch, batch_idx)

        def on_fit_end(self):
            loaders = [self.trainer.train_dataloader, self.trainer.val_dataloaders]
            samplers.extend(type(loader.sampler) for loader in loaders)

    data = torch.arange(8.0).view(4, 2)
    shuffled = DataLoader(data, shuffle=True)
    trainer = bare(counted, overfit_batches=limit, max_epochs=2, num_sanity_val_steps=2)
    trainer.fit(Looks(), shuffled, shuffled)
    assert seen == [[0.0, 1.0], [2.0, 3.0]] * 2
    assert trainer.num_val_batches == [2]
    assert counted.sanity == [0, 1]
    assert samplers == [SequentialSampler, SequentialSampler]
    assert isinstance(shuffled.sampler, RandomSampler)


# --- when it validates ---


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [5, 10, 15]),
        ({"val_check_interval": 1.0}, [5, 10, 15]),
        ({"val_check_interval": 0.5}, [2, 4, 7, 9, 12, 14]),
        ({"val_check_interval": 0.01}, [*range(1, 16)]),
        ({"val_check_interval": 1}, [*range(1, 16)]),
        ({"val_check_interval": 5}, [5, 10, 15]),
        ({"val_check_interval": 3}, [3, 8, 13]),
        ({"check_val_every_n_epoch": 2}, [10]),
        ({"check_val_every_n_epoch": 4}, []),
        ({"check_val_every_n_epoch": 2, "val_check_interval": 2}, [7, 9]),
        ({"check_val_every_n_epoch": None, "val_check_interval": 4}, [4, 8, 12]),
        ({"check_val_every_n_epoch": None, "val_check_interval": 7}, [7, 14]),
    ],
)
def test_validation_interval(options, expected, bare, tiny, batches, counted) -> None:
    """Validation runs at shares of an epoch or after so many batches, in each n-th epoch."""
    bare(counted, max_epochs=3, **options).fit(tiny(), batches(5), batches(1))
    assert counted.validated_at == expected


def test_an_interval_longer_than_an_epoch(bare, tiny, batches) -> None:
    """It would never be reached, which is an error that says how to count over epochs."""
    with pytest.raises(OptionError, match="check_val_every_n_epoch=None"):
        bare(val_check_interval=9).fit(tiny(), batches(5), batches(1))


def test_an_interval_longer_than_an_epoch_without_validation_data(bare, tiny, batches) -> None:
    """Where nothing is validated the interval is not compared with the epoch: it trains."""
    trainer = bare(max_epochs=2, val_check_interval=9)
    trainer.fit(tiny(), batches(5))
    assert trainer.global_step == 10


def test_a_stream_shorter_than_its_limit(bare, tiny, batches, counted) -> None:
    """A loader without length that ends before limit_train_batches is validated at its end."""
    trainer = bare(counted, max_epochs=2, limit_train_batches=9)
    trainer.fit(tiny(), DataLoader(Stream(4)), batches(1))
    assert counted.trained == [0, 1, 2, 3] * 2
    assert counted.validated_at == [4, 8]


def test_a_share_of_an_unknown_length(bare, tiny, batches) -> None:
    """A share of an epoch needs a loader that knows its length."""
    unknown = DataLoader(Stream(4))
    with pytest.raises(OptionError, match="no length"):
        bare(val_check_interval=0.5).fit(tiny(), unknown, batches(1))
    with pytest.raises(DataError, match=r"limit_train_batches=0\.5"):
        bare(limit_train_batches=0.5).fit(tiny(), unknown, batches(1))


@pytest.mark.parametrize(("steps", "expected"), [(0, []), (2, [0, 1]), (-1, [0, 1, 2])])
def test_the_sanity_check(steps, expected, bare, tiny, batches, counted) -> None:
    """num_sanity_val_steps batches are validated before training, and leave no trace."""
    seen = []

    class Looks(tiny):
        def validation_step(self, batch, batch_idx):
            self.log("val_loss", batch.mean() + torch.rand(1).item(), prog_bar=True)

        def on_train_start(self):
            trainer = self.trainer
            seen.append((dict(trainer.callback_metrics), dict(trainer.progress_bar_metrics)))
            seen.append((dict(trainer.logged_metrics), trainer.progress.validated_at))
            seen.append(torch.rand(1).item())

    trainer = bare(counted, num_sanity_val_steps=steps, limit_val_batches=3)
    module = Looks()
    torch.manual_seed(7)
    draw = torch.rand(1).item()
    torch.manual_seed(7)
    trainer.fit(module, batches(1), batches(5))
    assert counted.sanity == expected
    assert seen == [({}, {}), ({}, -1), draw]


def test_no_sanity_check_without_validation(bare, tiny, defaulted, batches, recorder) -> None:
    """It is left out where there is no validation step or no validation data."""

    class Trains(defaulted):
        def training_step(self, batch, batch_idx):
            return self(batch).mean()

        def val_dataloader(self):
            return batches(1)

    for module, category in ((Trains(), TrainerHooksWarning), (tiny(), TrainerHooksAdvice)):
        seen = recorder()
        with pytest.warns(category, match="validation_step.* nothing is validated"):
            bare(seen, num_sanity_val_steps=2).fit(module, batches(1))
        assert seen.count("on_sanity_check_start") == 0
        assert seen.count("on_validation_start") == 0
    with pytest.warns(TrainerHooksWarning, match="has no validation_step") as caught:
        bare().fit(Trains(), batches(1), batches(1))
    assert caught[0].filename == __file__


def test_several_validation_loaders(bare, tiny, loader, batches) -> None:
    """Their metrics have the loader's number; a metric of the epoch's end belongs to all."""

    class Logs(tiny):
        def on_validation_epoch_end(self):
            self.log("shared", 7.0)

    trainer = bare()
    trainer.fit(Logs(), batches(1), [loader(1), loader(2)])
    names = {"val_loss/dataloader_idx_0", "val_loss/dataloader_idx_1"}
    assert {*trainer.callback_metrics} == {"loss", "shared", *names}
    results = trainer.validate(dataloaders=[loader(1), loader(2)], verbose=False)
    assert [{*metrics} for metrics in results] == [
        {"val_loss/dataloader_idx_0", "shared"},
        {"val_loss/dataloader_idx_1", "shared"},
    ]


# --- loaders of all kinds ---


def test_an_unknown_length(bare, tiny, batches, counted) -> None:
    """The last batch of a loader without a length is known as such, and closes its window."""
    lengths = []
    counted.on_train_epoch_start = lambda trainer, module: lengths.append(
        trainer.num_training_batches
    )
    trainer = bare(counted, max_epochs=2, accumulate_grad_batches=2)
    trainer.fit(tiny(), DataLoader(Stream(3)), batches(1))
    assert counted.trained == [0, 1, 2] * 2
    assert counted.last == [False, False, True] * 2
    assert trainer.global_step == 4
    assert counted.validated_at == [3, 6]
    assert lengths[0] == math.inf
    assert trainer.num_training_batches == 3


def test_an_unknown_length_with_a_limit(bare, tiny, counted) -> None:
    """limit_train_batches makes the length of an endless loader."""
    trainer = bare(counted, max_epochs=2, limit_train_batches=2)
    trainer.fit(tiny(), DataLoader(Stream(1000)))
    assert counted.trained == [0, 1] * 2
    assert counted.last == [False, True] * 2


def test_an_unknown_length_of_validation(bare, tiny, batches, counted) -> None:
    """A validation loader without a length is run to its end."""
    trainer = bare(counted, num_sanity_val_steps=2)
    trainer.fit(tiny(), batches(1), DataLoader(Stream(3)))
    assert counted.sanity == [0, 1]
    assert trainer.num_val_batches == [math.inf]
    assert counted.validated_at == [1]


@pytest.mark.parametrize("kind", [list, dict])
def test_several_training_loaders(kind, bare, tiny, loader, counted) -> None:
    """A list or dict of loaders gives lists or dicts of batches; the shorter one starts again."""
    seen = []

    class Several(tiny):
        def training_step(self, batch, batch_idx):
            seen.append(batch)
            first, second = batch.values() if kind is dict else batch
            return super().training_step(torch.cat([first, second]), batch_idx)

    pair = [loader(2), loader(3)]
    trainer = bare(counted)
    trainer.fit(Several(), pair if kind is list else {"a": pair[0], "b": pair[1]})
    assert counted.trained == [0, 1, 2]
    assert trainer.num_training_batches == 3
    assert all(type(batch) is kind for batch in seen)
    rows = [batch if kind is list else [batch["a"], batch["b"]] for batch in seen]
    assert torch.equal(rows[2][0], rows[0][0])
    assert not torch.equal(rows[2][1], rows[0][1])


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x,
        lambda x: [x, x],
        lambda x: (x, x),
        lambda x: {"x": x},
        lambda x: x.numpy(),
    ],
    ids=["tensor", "list", "tuple", "dict", "array"],
)
def test_a_list_of_batches(make, bare, tiny, batches) -> None:
    """A list whose items are batches is a loader itself, and not several loaders."""
    seen = []

    class Looks(tiny):
        def training_step(self, batch, batch_idx):
            seen.append(type(batch))
            return self.layer.weight.sum()

    data = [make(batch) for batch in batches(3)]
    bare().fit(Looks(), data)
    assert seen == [type(data[0])] * 3


def test_an_empty_loader(bare, tiny) -> None:
    """A training loader without a batch is an error."""
    with pytest.raises(DataError, match="gives no batch"):
        bare().fit(tiny(), [])


@pytest.mark.parametrize("is_distributed", [False, True])
def test_samplers_are_told_the_epoch(is_distributed, bare, tiny) -> None:
    """A sampler with set_epoch gets the number of the epoch that begins."""
    epochs = []

    class Sampler(torch.utils.data.SequentialSampler):
        def set_epoch(self, epoch):
            epochs.append(epoch)

    class Takes(tiny):
        def training_step(self, batch, batch_idx):
            return super().training_step(batch[0] if is_distributed else batch, batch_idx)

    data = torch.ones(2, 2)
    loader = DataLoader(data, sampler=Sampler(data))
    bare(max_epochs=3).fit(Takes(), [loader, DataLoader(data)] if is_distributed else loader)
    assert epochs == [0, 1, 2]


# --- cycles ---


@pytest.fixture
def cycles(recorder):
    """A recorder of the iteration hooks with the epochs done, in a list."""
    seen, events = recorder(), []
    for hook in ("on_iteration_start", "on_iteration_end", "on_iteration_checkpoint"):
        name = hook.removeprefix("on_iteration_")
        seen.on(hook, lambda trainer, _, name=name: events.append((name, trainer.current_epoch)))
    seen.events = events
    return seen


def test_iterations(bare, tiny, batches, cycles) -> None:
    """A cycle of iteration_length epochs begins and ends with its hooks."""
    bare(cycles, max_epochs=4, iteration_length=2).fit(tiny(), batches(1))
    assert cycles.events == [
        ("start", 0),
        ("end", 2),
        ("checkpoint", 2),
        ("start", 2),
        ("end", 4),
        ("checkpoint", 4),
    ]


def test_an_iteration_that_is_cut_off(bare, tiny, batches, cycles) -> None:
    """A cycle that the run's end cuts short is closed, and opened again where a fit goes on."""
    trainer, module = bare(cycles, max_epochs=3, iteration_length=2), tiny()
    trainer.fit(module, batches(1))
    assert cycles.events[3:] == [("start", 2), ("end", 3), ("checkpoint", 3)]
    assert cycles.names.index("on_train_end") == len(cycles.names) - 3
    trainer.max_epochs = 4
    trainer.fit(module, batches(1))
    assert cycles.events[6:] == [("start", 3), ("end", 4), ("checkpoint", 4)]


@pytest.mark.parametrize(
    ("hook", "epoch", "expected"),
    [
        ("on_batch_checkpoint", 1, ["end 2", "checkpoint 2", "start 2", "end 3", "checkpoint 3"]),
        ("on_epoch_checkpoint", 1, ["end 2", "checkpoint 2", "start 2", "end 3", "checkpoint 3"]),
        ("on_iteration_checkpoint", 2, ["start 2", "end 3", "checkpoint 3"]),
        ("on_train_start", 0, ["start 0", "end 2", "checkpoint 2", "start 2", "end 3"]),
    ],
)
def test_an_iteration_that_is_resumed(
    hook, epoch, expected, bare, tiny, batches, cycles, tmp_path
) -> None:
    """A run that is resumed inside a cycle does not begin it again; one at its start does."""
    path = tmp_path / "x.ckpt"
    saver = Callback()

    def save(trainer, module):
        if trainer.current_epoch == epoch:
            trainer.save_checkpoint(path)

    setattr(saver, hook, save)
    options = {"max_epochs": 3, "iteration_length": 2}
    bare(saver, **options).fit(tiny(), batches(1))
    with pytest.warns(TrainerHooksWarning, match="no state for 'Recorder '"):
        bare(cycles, **options).fit(tiny(), batches(1), ckpt_path=path)
    assert [f"{name} {done}" for name, done in cycles.events][: len(expected)] == expected


# --- where a run stands ---


def test_what_hooks_see_of_the_run(bare, tiny, batches) -> None:
    """State, stage and counters at the moments of a fit."""
    seen = []

    class Looks(Callback):
        pass

    def note(hook):
        def listen(self, trainer, module, *args):
            state = (trainer.state.fn, trainer.state.stage, trainer.current_epoch)
            seen.append((hook, *state, trainer.global_step))

        return listen

    for hook in (
        "setup",
        "on_fit_start",
        "on_sanity_check_start",
        "on_train_start",
        "on_train_batch_start",
        "on_train_batch_end",
        "on_validation_start",
        "on_train_epoch_end",
        "on_epoch_checkpoint",
        "on_train_end",
        "teardown",
    ):
        setattr(Looks, hook, note(hook))
    trainer = bare(Looks(), num_sanity_val_steps=1)
    trainer.fit(tiny(), batches(1), batches(1))
    assert seen == [
        ("setup", "fit", "train", 0, 0),
        ("on_fit_start", "fit", "train", 0, 0),
        ("on_sanity_check_start", "fit", "sanity_check", 0, 0),
        ("on_validation_start", "fit", "sanity_check", 0, 0),
        ("on_train_start", "fit", "train", 0, 0),
        ("on_train_batch_start", "fit", "train", 0, 0),
        ("on_train_batch_end", "fit", "train", 0, 1),
        ("on_validation_start", "fit", "validate", 0, 1),
        ("on_train_epoch_end", "fit", "train", 0, 1),
        ("on_epoch_checkpoint", "fit", "train", 0, 1),
        ("on_train_end", "fit", "train", 1, 1),
        ("teardown", "fit", "train", 1, 1),
    ]
    assert (trainer.state.fn, trainer.state.stage) == ("fit", None)
