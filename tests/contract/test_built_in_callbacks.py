"""Every callback that comes with trainer_hooks keeps the contract that it asks of others."""

from __future__ import annotations

from datetime import timedelta

import pytest

from trainer_hooks import Callback, callbacks
from trainer_hooks.callbacks import (
    Checkpoint,
    CheckpointSaver,
    EarlyStopping,
    LambdaCallback,
    LearningRateMonitor,
    ModelCheckpoint,
    ModelSummary,
    ProgressBar,
    RichProgressBar,
    Timer,
    TQDMProgressBar,
)

pytestmark = pytest.mark.slow  # a training for each check of each callback


def _nothing(*args: object) -> None:
    pass


CASES = {
    "Checkpoint": (Checkpoint, {}),
    # its second fit finds the files of the first
    "CheckpointSaver": (lambda: CheckpointSaver(overwrite=True), {}),
    "CheckpointSaver, batches": (
        lambda: CheckpointSaver(
            "kept", save_interval="1ba", num_checkpoints_to_keep=2, overwrite=True
        ),
        {},
    ),
    "EarlyStopping": (lambda: EarlyStopping("val_loss"), {}),
    "EarlyStopping, at once": (lambda: EarlyStopping("val_loss", patience=1, min_delta=9.0), {}),
    "EarlyStopping, after training": (
        lambda: EarlyStopping("train_loss", check_on_train_epoch_end=True, mode="max"),
        {},
    ),
    "LambdaCallback": (lambda: LambdaCallback(on_train_batch_end=_nothing, teardown=_nothing), {}),
    "LearningRateMonitor": (LearningRateMonitor, {}),
    "LearningRateMonitor, steps": (
        lambda: LearningRateMonitor("step", log_momentum=True, log_weight_decay=True),
        {},
    ),
    "ModelCheckpoint": (ModelCheckpoint, {}),
    "ModelCheckpoint, best and last": (
        lambda: ModelCheckpoint(monitor="val_loss", save_top_k=2, save_last=True),
        {},
    ),
    "ModelCheckpoint, in the background": (
        lambda: ModelCheckpoint(monitor="val_loss", save_last=True, async_save=True),
        {},
    ),
    "ModelCheckpoint, steps": (
        lambda: ModelCheckpoint(
            dirpath="kept", monitor="train_loss", every_n_train_steps=1, save_top_k=-1
        ),
        {},
    ),
    "ModelSummary": (ModelSummary, {}),
    "ProgressBar": (ProgressBar, {}),
    "RichProgressBar": (RichProgressBar, {}),
    "TQDMProgressBar": (TQDMProgressBar, {}),
    "Timer": (Timer, {}),
    "Timer, with an end": (lambda: Timer(timedelta(hours=1), interval="epoch"), {}),
}


@pytest.mark.parametrize("name", CASES)
def test_a_built_in_callback_keeps_the_contract(name, callback_contract) -> None:
    """Whatever an author's callback must do, the built-in ones do, in the ways they are used."""
    factory, options = CASES[name]
    callback_contract(factory, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"accumulate_grad_batches": 1, "val_check_interval": 1},
        {"accumulate_grad_batches": 1, "check_val_every_n_epoch": 2, "max_epochs": 2},
    ],
    ids=["validation after each batch", "validation now and then"],
)
@pytest.mark.parametrize("name", ["EarlyStopping", "ModelCheckpoint, best and last"])
def test_they_resume_with_validations_elsewhere(name, options, callback_contract) -> None:
    """Those that go by validations keep the contract wherever in the epoch these are."""
    callback_contract(CASES[name][0], trainer_options=options)


def test_no_built_in_callback_is_left_out() -> None:
    """A callback that is made public must be added to the table."""
    public = {
        name
        for name in callbacks.__all__
        if isinstance(value := getattr(callbacks, name), type) and issubclass(value, Callback)
    }
    assert public == {name.partition(",")[0] for name in CASES}
