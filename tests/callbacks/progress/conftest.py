"""What the tests of bars share: a clock, and a trainer that only counts."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from trainer_hooks.callbacks import RichProgressBar, TQDMProgressBar
from trainer_hooks.clock.progress import EpochStage, Progress

if TYPE_CHECKING:
    from trainer_hooks import Time


@pytest.fixture(params=[TQDMProgressBar, RichProgressBar])
def kind(request):
    """Each of the bars that are drawn."""
    return request.param


@pytest.fixture
def clock(monkeypatch):
    """The clock of the progress bars, which goes on only when a test says so."""
    now = SimpleNamespace(seconds=1000.0)
    monkeypatch.setattr("trainer_hooks.callbacks.progress.display.monotonic", lambda: now.seconds)
    monkeypatch.setattr(time, "perf_counter", lambda: now.seconds)
    return now


@dataclass
class CountingTrainer:
    """What a progress bar reads of a trainer, and nothing else."""

    num_training_batches: int | float = 4
    num_val_batches: list = field(default_factory=list)
    num_sanity_val_batches: list = field(default_factory=list)
    num_test_batches: list = field(default_factory=list)
    num_predict_batches: list = field(default_factory=list)
    max_epochs: int = 2
    max_steps: int = -1
    max_duration: Time | None = None
    accumulate_grad_batches: int = 1
    train_dataloader: object = None
    module: object = field(default_factory=lambda: SimpleNamespace(automatic_optimization=True))
    share_done: float = 0.0
    is_global_zero: bool = True
    sanity_checking: bool = False
    check_val_every_n_epoch: int | None = 1
    state: object = field(default_factory=lambda: SimpleNamespace(fn="fit"))
    logger: object = None
    progress: Progress = field(default_factory=Progress)
    metrics: dict = field(default_factory=lambda: {"loss": 0.5})
    metrics_read: int = 0

    @property
    def current_epoch(self) -> int:
        return self.progress.epochs_completed

    @property
    def clock(self) -> SimpleNamespace:
        return SimpleNamespace(share_done=self.share_done)

    @property
    def progress_bar_metrics(self) -> dict:
        self.metrics_read += 1
        return dict(self.metrics)


class Run:
    """Fires the hooks of a run on one progress bar, in the order of the catalogue."""

    def __init__(self, bar, **options) -> None:
        self.bar = bar
        self.trainer = CountingTrainer(**options)
        self.args = (self.trainer, SimpleNamespace())
        self.at_batch = lambda count: None
        self.at_val_batch = lambda count: None

    def start(self, stage="fit"):
        self.bar.setup(*self.args, stage)

    def sanity_check(self):
        self.trainer.sanity_checking = True
        self.bar.on_sanity_check_start(*self.args)
        self.validate(self.trainer.num_sanity_val_batches)
        self.bar.on_sanity_check_end(*self.args)
        self.trainer.sanity_checking = False

    def validate(self, totals=None):
        self.bar.on_validation_start(*self.args)
        totals = self.trainer.num_val_batches if totals is None else totals
        self._evaluate(self.bar.on_validation_batch_end, totals)
        self.bar.on_validation_end(*self.args)

    def _evaluate(self, batch_end, totals):
        for loader, total in enumerate(totals):
            for index in range(total):
                batch_end(*self.args, None, None, index, *([loader] if len(totals) > 1 else []))
                self.at_val_batch(index + 1)

    def batches(self, until=None):
        progress = self.trainer.progress
        until = self.trainer.num_training_batches if until is None else until
        while progress.batches_in_epoch < until:
            progress.batches_in_epoch += 1
            progress.batches_completed += 1
            index = progress.batches_in_epoch - 1
            self.bar.on_train_batch_end(*self.args, {}, None, index)
            self.at_batch(index + 1)

    def epoch(self, batches=None):
        progress = self.trainer.progress
        if progress.stage is not EpochStage.BATCHES:
            progress.begin_epoch()
            self.bar.on_train_epoch_start(*self.args)
        self.batches(batches)
        self.bar.on_train_batches_end(*self.args)
        if self.trainer.num_val_batches:
            self.validate()
        self.bar.on_train_epoch_end(*self.args)
        progress.complete_epoch()

    def fit(self, batches=None):
        self.start()
        if self.trainer.num_sanity_val_batches:
            self.sanity_check()
        self.bar.on_train_start(*self.args)
        while self.trainer.current_epoch < self.trainer.max_epochs:
            self.epoch(batches)
        self.bar.on_train_end(*self.args)
        self.bar.teardown(*self.args, "fit")

    def evaluate(self, what, totals):
        setattr(self.trainer, f"num_{'val' if what == 'validation' else what}_batches", totals)
        self.start(what)
        getattr(self.bar, f"on_{what}_start")(*self.args)
        self._evaluate(getattr(self.bar, f"on_{what}_batch_end"), totals)
        getattr(self.bar, f"on_{what}_end")(*self.args)
        self.bar.teardown(*self.args, what)


@pytest.fixture
def run():
    """The class that fires the hooks of a run on one bar."""
    return Run
