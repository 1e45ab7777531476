"""Bars know where the run ends, and how long all of it still takes."""

from __future__ import annotations

import re

import pytest
import torch
from torch.utils.data import DataLoader

from trainer_hooks import Callback
from trainer_hooks.callbacks import RichProgressBar, TQDMProgressBar
from trainer_hooks.testing import TinyModule


class Words(TinyModule):
    def val_dataloader(self):
        return None


@pytest.fixture
def lines(bare, capsys):
    """A function that fits on ten batches of two and returns the lines of the bar, as in a log."""

    def fit(*callbacks, bar=TQDMProgressBar, **options) -> list[str]:
        options = {"max_epochs": None, "enable_progress_bar": True, **options}
        trainer = bare(bar(), *callbacks, **options)
        trainer.fit(Words(), DataLoader([(torch.ones(2), 0)] * 20, batch_size=2))
        out = capsys.readouterr().out.splitlines()
        return [line for line in out if line.startswith("Epoch")]

    return fit


@pytest.mark.parametrize("bar", [TQDMProgressBar, RichProgressBar])
@pytest.mark.parametrize(
    ("options", "counts"),
    [
        ({"max_steps": 3}, ["3/3"]),
        ({"max_steps": 14}, ["10/10", "4/4"]),
        ({"max_steps": 5, "accumulate_grad_batches": 4}, ["10/10", "8/8"]),
        ({"max_duration": "12ba"}, ["10/10", "2/2"]),
        ({"max_duration": "7sp"}, ["4/4"]),
        ({"max_duration": "25sp"}, ["10/10", "3/3"]),
        ({"max_duration": "2ep", "max_steps": 900}, ["10/10", "10/10"]),
    ],
    ids=str,
)
def test_the_bar_of_the_last_epoch_ends_where_the_run_does(lines, bar, options, counts) -> None:
    """Its total is what the limits leave of the epoch, in whatever unit they are known."""
    assert [re.search(r": (\d+/\d+)", line)[1] for line in lines(bar=bar, **options)] == counts


def test_steps_that_are_left_out_move_the_end(lines) -> None:
    """A bar whose steps turn out fewer goes on to where the run ends now."""

    class Skips(Callback):
        def on_train_batch_start(self, trainer, module, batch, batch_idx):
            if batch_idx in (1, 2):
                trainer.skip_batch()

    [last] = lines(Skips(), max_steps=5)
    assert "7/7 [" in last


def test_the_time_left_of_the_whole_run(lines) -> None:
    """It stands beside the epoch's wherever more than this epoch is to come."""
    first, second, third = lines(max_epochs=3)
    assert re.search(r", run<\d\d:\d\d, ", first)
    assert re.search(r", run<\d\d:\d\d, ", second)
    assert "run<" not in third
    [only] = lines(max_steps=9)
    assert "run<" not in only


def test_of_a_run_without_end_nothing_is_said(lines) -> None:
    """There is no time left to tell."""

    class Stops(Callback):
        def on_train_epoch_end(self, trainer, module):
            if trainer.current_epoch == 1:
                trainer.stop()

    assert "run<" not in "".join(lines(Stops(), max_epochs=-1))
