"""What is said once of a fit that may not be as it was meant."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader

from trainer_hooks import DataModule, Module, Trainer
from trainer_hooks.errors import TrainerHooksAdvice, TrainerHooksWarning
from trainer_hooks.loggers import InMemoryLogger
from trainer_hooks.loops import batch_fetcher as loading_watch

OFF = {
    "accelerator": "cpu",
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "enable_checkpointing": False,
    "plugins": False,
    "num_sanity_val_steps": 0,
}


class Net(Module):
    def __init__(self) -> None:
        super().__init__()
        self.backbone = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout())
        self.head = torch.nn.Linear(2, 1)

    def training_step(self, batch, batch_idx):
        return self.head(self.backbone(batch)).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Validated(Net):
    def validation_step(self, batch, batch_idx):
        pass


def loader(count: int = 4, **options) -> DataLoader:
    return DataLoader(torch.ones(count, 2), **options)


def told(recwarn) -> list[str]:
    return [str(w.message) for w in recwarn.list if w.category is TrainerHooksAdvice]


def test_a_fit_as_it_is_meant_to_be_gets_no_advice(recwarn, tmp_path) -> None:
    """A length, steps that are logged, a module in train mode, ordered validations: no word."""
    trainer = Trainer(max_epochs=1, logger=InMemoryLogger(), log_every_n_steps=4, **OFF)
    net = Validated()
    net.backbone.eval().requires_grad_(False)  # on purpose
    trainer.fit(net, loader(shuffle=True), loader())
    assert told(recwarn) == []


class Misspelt(Net):
    def validaton_step(self, batch, batch_idx):
        pass


class Loads(DataModule):
    def train_dataloader(self):
        return loader()

    def val_dataloader(self):
        return loader()


class MisspeltData(DataModule):
    def train_dataloader(self):
        return loader()

    def val_dataloaders(self):
        return loader()


def short(**options) -> Trainer:
    return Trainer(max_epochs=1, logger=False, **{**OFF, **options})


@pytest.mark.parametrize("options", [{}, {"fast_dev_run": True}], ids=["fit", "dry"])
def test_validation_data_without_a_step(options) -> None:
    """It is told of once, whoever has the loader, with a method whose name is nearly the step's."""
    trainer = short(**options)
    step = r"has no validation_step, .* Misspelt.validaton_step\(\). Did you mean 'validation_step'"
    with pytest.warns(TrainerHooksWarning, match=rf"fit has Loads.val_dataloader\(\), .* {step}"):
        trainer.fit(Misspelt(), datamodule=Loads())
    trainer.fit(Misspelt(), datamodule=Loads())
    own = type("Own", (Net,), {"val_dataloader": lambda _: loader()})
    with pytest.warns(TrainerHooksWarning, match=r"fit has Own.val_dataloader\(\), but Own has no"):
        short(**options).fit(own(), loader())


def test_a_validation_step_without_data(recwarn) -> None:
    """It is told of, with a method whose name is nearly the loader's."""
    short(log_every_n_steps=4).fit(Validated(), loader())
    assert len(told(recwarn)) == 1
    assert "Validated has a validation_step, but fit was given no" in told(recwarn)[0]
    with pytest.warns(TrainerHooksAdvice, match=r"MisspeltData.val_dataloaders\(\). Did you mean"):
        short().fit(Validated(), datamodule=MisspeltData())


def test_half_a_validation_that_is_meant(recwarn) -> None:
    """With limit_val_batches=0, or a loader that may be empty, nothing is said."""
    short(limit_val_batches=0).fit(Misspelt(), datamodule=Loads())
    short(limit_val_batches=0).fit(Validated(), loader())
    short().fit(Validated(), loader(), [])
    assert told(recwarn) == []


def test_no_length(recwarn) -> None:
    """That a thousand epochs were not asked for is said, unless another limit was given."""
    for options in ({"max_steps": 2}, {"max_time": "00:00:01:00"}, {"max_epochs": 1}):
        trainer = Trainer(logger=False, limit_train_batches=1, **OFF, **options)
        trainer.should_stop = True
        if "max_time" not in options:
            trainer.fit(Net(), loader())
    assert told(recwarn) == []

    class Stops(Net):
        def on_train_batch_end(self, *_):
            self.trainer.stop()

    trainer = Trainer(logger=False, **OFF)
    with pytest.warns(TrainerHooksAdvice, match="ends after 1000 epochs"):
        trainer.fit(Stops(), loader())


def test_an_epoch_shorter_than_what_is_logged(recwarn) -> None:
    """Steps of which loggers see none are told of once, however often the trainer fits."""
    trainer = Trainer(max_epochs=1, logger=InMemoryLogger(), accumulate_grad_batches=2, **OFF)
    with pytest.warns(TrainerHooksAdvice, match=r"an epoch has 2 steps, and .* every 50"):
        trainer.fit(Net(), loader())
    trainer.fit(Net(), loader())
    Trainer(max_epochs=1, logger=False, **OFF).fit(Net(), loader())
    assert told(recwarn) == []


def test_a_module_in_eval_mode(recwarn) -> None:
    """Parts that are trained in eval mode are named; those that are frozen are meant to be so."""
    net = Net()
    net.head.eval()
    trainer = Trainer(max_epochs=1, logger=False, **OFF)
    with pytest.warns(TrainerHooksAdvice, match="head will be trained in eval mode"):
        trainer.fit(net, loader())
    trainer = Trainer(max_epochs=1, logger=False, **OFF)
    with pytest.warns(TrainerHooksAdvice, match=r"Net, backbone.0, head will be trained"):
        trainer.fit(Net().eval(), loader())
    many = Net()
    many.backbone = torch.nn.Sequential(*(torch.nn.Linear(2, 2) for _ in range(4)))
    trainer = Trainer(max_epochs=1, logger=False, **OFF)
    with pytest.warns(TrainerHooksAdvice, match=r"Net, backbone.0, backbone.1 and 3 more will be"):
        trainer.fit(many.eval(), loader())


def test_a_shuffled_evaluation(recwarn) -> None:
    """An evaluation in a random order is told of once for each stage."""
    trainer = Trainer(max_epochs=1, logger=False, **OFF)
    shuffled = loader(shuffle=True)
    with pytest.warns(TrainerHooksAdvice, match="the validate loader .* in a random order"):
        trainer.fit(Validated(), loader(), shuffled)
    trainer.validate(dataloaders=shuffled, verbose=False)
    assert told(recwarn) == []


class Clock:
    """A clock that goes on as it is told."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(loading_watch, "time", found)
    monkeypatch.setattr(loading_watch, "usable_cpus", lambda: 8)
    return found


class Slow(torch.utils.data.Dataset):
    """Samples that each take a time to load."""

    def __init__(self, clock: Clock, seconds: float, count: int) -> None:
        self.clock, self.seconds, self.count = clock, seconds, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        self.clock.now += self.seconds
        return torch.ones(2)


class Working(Net):
    """A step that takes a time."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        super().__init__()
        self.clock, self.seconds = [clock], seconds

    def on_train_batch_start(self, batch, batch_idx):
        self.clock[0].now += self.seconds


def fit(clock: Clock, loading: float, working: float, count: int = 40) -> None:
    trainer = Trainer(max_epochs=2, logger=False, **OFF)
    trainer.fit(Working(clock, working), DataLoader(Slow(clock, loading, count)))
    assert trainer.global_step == 2 * count


def test_a_slow_loader_with_few_workers(clock) -> None:
    """Waiting for most of the time, as measured, is told of, with how many workers there may be."""
    with pytest.warns(TrainerHooksAdvice) as warned:
        fit(clock, loading=0.3, working=0.1)
    [only] = [str(one.message) for one in warned]
    assert "waits for its loader 75% of the time, as measured over 20 batches" in only
    assert "has num_workers=0. Try more, up to 7" in only


@pytest.mark.parametrize(
    ("loading", "working", "count"),
    [(0.1, 0.3, 40), (0.003, 0.001, 40), (0.3, 0.1, 20)],
    ids=["busy", "short", "few"],
)
def test_a_loader_that_is_fast_enough(clock, recwarn, loading, working, count) -> None:
    """A loader that is waited for less, or hardly any time in all, is as good as any."""
    fit(clock, loading, working, count)
    assert told(recwarn) == []


def test_where_there_are_workers_enough(clock, recwarn, monkeypatch) -> None:
    """With as many workers as CPUs there is nothing to advise."""
    monkeypatch.setattr(loading_watch, "usable_cpus", lambda: 1)
    fit(clock, loading=0.3, working=0.1)
    assert told(recwarn) == []


def test_hyperparameters_with_two_values(recwarn) -> None:
    """One name in the module and in the data module is said, if the values differ."""

    class Data(DataModule):
        def __init__(self, size: int = 1, depth: int = 1) -> None:
            super().__init__()
            self.save_hyperparameters()

        def train_dataloader(self):
            return loader()

    class Sized(Net):
        def __init__(self, size: int = 1, depth: int = 2) -> None:
            super().__init__()
            self.save_hyperparameters()

    logger = InMemoryLogger()
    Trainer(max_epochs=1, logger=logger, log_every_n_steps=4, **OFF).fit(Sized(), datamodule=Data())
    (said,) = told(recwarn)
    assert said.startswith("the hyperparameters 'depth' have one value in the data module")
    assert logger.hparams["depth"] == 2
