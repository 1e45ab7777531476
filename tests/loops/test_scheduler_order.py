"""The order of schedulers, validations and savers, as the table in docs/optimizers.md has it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from own_loops import fit_by_run
from quiet_trainers import QUIET_OPTIONS
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR
from torch.utils.data import IterableDataset

from trainer_hooks import Callback, Module

PAGE = Path(__file__).parents[2] / "docs" / "optimizers.md"
ROW = re.compile(r"^\| (.+?) \| .+ \|$", re.MULTILINE)

STEP = "optimizer step"
BY_STEP = 'scheduler with `interval="step"`'
BY_EPOCH = 'scheduler with `interval="epoch"`'
BATCH_END = "`on_train_batch_end`"
INSIDE = "validation inside the epoch"
BATCH_SAVERS = "savers in `on_batch_checkpoint`"
OF_EPOCH = "validation of the epoch"
WAITING = 'scheduler with `interval="step"` and `monitor`'
EPOCH_END = "`on_train_epoch_end`"
PLATEAU = 'scheduler with `interval="epoch"` and `monitor`'
EPOCH_SAVERS = "savers in `on_epoch_checkpoint`"


def told(events: list[str], label: str, kind: type) -> type:
    """Return a scheduler class that notes its steps, but for the one of its construction."""

    class Told(kind):
        has_begun = False

        def step(self, *values) -> None:
            if self.has_begun:
                events.append(label)
            super().step(*values)

    return Told


class Net(Module):
    """Has a scheduler of each kind."""

    def __init__(self, events: list[str]) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.events = events

    def training_step(self, batch, batch_idx):
        return self.layer(batch).square().mean()

    def validation_step(self, batch, batch_idx) -> None:
        is_inside = self.events[-1] == BATCH_END
        self.events.append(INSIDE if is_inside else OF_EPOCH)
        self.log("far", self.layer(batch).square().mean())

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        optimizer.register_step_post_hook(lambda *_: self.events.append(STEP))

        def config(label: str, kind: type, interval: str, *args, **more):
            scheduler = told(self.events, label, kind)(optimizer, *args)
            scheduler.has_begun = True
            return {"scheduler": scheduler, "interval": interval, **more}

        return [optimizer], [
            config(PLATEAU, ReduceLROnPlateau, "epoch", monitor="far"),
            config(WAITING, ReduceLROnPlateau, "step", monitor="far"),
            config(BY_EPOCH, StepLR, "epoch", 1),
            config(BY_STEP, StepLR, "step", 1),
        ]


class Noting(Callback):
    """Notes the hooks of the table."""

    def __init__(self, events: list[str]) -> None:
        self.events = events

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx) -> None:
        self.events.append(BATCH_END)

    def on_batch_checkpoint(self, trainer, module) -> None:
        self.events.append(BATCH_SAVERS)

    def on_train_epoch_end(self, trainer, module) -> None:
        self.events.append(EPOCH_END)

    def on_epoch_checkpoint(self, trainer, module) -> None:
        self.events.append(EPOCH_SAVERS)


class Endless(IterableDataset):
    """Batches of a loader without a length."""

    def __iter__(self):
        return iter(torch.ones(2, 3, 1))


def events_of(bare, train, *, by_run: bool = False, **options) -> list[str]:
    events: list[str] = []
    net, val = Net(events), [torch.ones(1, 1)]
    options |= {"num_sanity_val_steps": 0, "max_epochs": 1}
    if by_run:
        fit_by_run(net, train, val, callbacks=[Noting(events)], **QUIET_OPTIONS, **options)
    else:
        bare(Noting(events), **options).fit(net, train, val)
    return events


BATCH = [STEP, BY_STEP, BATCH_END]
END = [EPOCH_END, PLATEAU, EPOCH_SAVERS]


def test_the_page_has_the_rows_of_this_order() -> None:
    """In the order in which the lists of the next tests have them."""
    rows = [label for label in ROW.findall(PAGE.read_text(encoding="utf-8")) if label in {
        *BATCH, INSIDE, BATCH_SAVERS, BY_EPOCH, OF_EPOCH, WAITING, *END
    }]  # fmt: skip
    assert rows == [
        STEP, BY_STEP, BY_EPOCH, BATCH_END, INSIDE, BATCH_SAVERS, OF_EPOCH, WAITING, *END
    ]  # fmt: skip


@pytest.mark.parametrize("by_run", [False, True])
def test_validations_inside_the_epoch(bare, by_run) -> None:
    """A scheduler with a monitor steps after the validation of its batch."""
    events = events_of(bare, list(torch.ones(2, 3, 1)), by_run=by_run, val_check_interval=1)
    assert events == [
        *BATCH, INSIDE, BATCH_SAVERS, WAITING,
        STEP, BY_STEP, BY_EPOCH, BATCH_END, INSIDE, BATCH_SAVERS, WAITING, *END,
    ]  # fmt: skip


@pytest.mark.parametrize("has_length", [False, True])
def test_the_validation_of_the_epoch(bare, has_length) -> None:
    """The last batch's scheduler waits for it, also where the loader has no length.

    The window has two batches, so that one step is made.
    """
    train = list(torch.ones(2, 3, 1)) if has_length else Endless()
    loader = train if has_length else torch.utils.data.DataLoader(train, batch_size=None)
    events = events_of(bare, loader, accumulate_grad_batches=2)
    last = [STEP, BY_STEP, BY_EPOCH, BATCH_END, BATCH_SAVERS]
    assert events == [BATCH_END, BATCH_SAVERS, *last, OF_EPOCH, WAITING, *END]


def test_the_end_by_max_steps_validates_before_the_scheduler(bare) -> None:
    """Its metric is there: without the validation it would be missing."""
    events = events_of(bare, list(torch.ones(4, 3, 1)), max_steps=1)
    assert events == [*BATCH, BATCH_SAVERS, OF_EPOCH, WAITING, *END]
