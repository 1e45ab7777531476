"""A start from a checkpoint that failed before it had trained a batch is told at the next one."""

from __future__ import annotations

import contextlib
import json
import warnings

import pytest
import torch

from trainer_hooks import Callback, Trainer
from trainer_hooks.callbacks import ModelCheckpoint
from trainer_hooks.errors import TrainerHooksWarning
from trainer_hooks.trainer.run.failed_start import RECORD

BATCHES = [torch.ones(2, 2)] * 4


class Raises(Callback):
    """Raises an error at a hook, or at a batch."""

    def __init__(self, hook: str = "", error: type[BaseException] = ValueError, at: int = 0):
        self.hook, self.error, self.at = hook, error, at

    def run_event(self, event, *args):
        if event == self.hook and args[0].progress.batches_completed >= self.at:
            raise self.error(f"a fault in {event}")


@pytest.fixture
def fit(tmp_path, Tiny):
    """Return a function that starts the training anew, as another process would."""

    def start(*callbacks, epochs=2, ckpt_path="auto", folder=tmp_path) -> list[str]:
        saver = ModelCheckpoint(folder, save_last=True)
        trainer = Trainer(
            max_epochs=epochs, accelerator="cpu", logger=False, plugins=False,
            callbacks=[*callbacks, saver], enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", TrainerHooksWarning)
            with contextlib.suppress(ValueError, KeyboardInterrupt):
                trainer.fit(Tiny(), BATCHES, ckpt_path=ckpt_path)
        return [str(one.message) for one in caught if "once more" in str(one.message)]

    return start


@pytest.mark.parametrize(
    "hook",
    ["setup", "on_before_load", "on_load_checkpoint", "on_fit_start", "on_train_start",
     "on_train_epoch_start", "on_before_dataloader", "on_train_batch_start", "on_before_backward"],
)  # fmt: skip
def test_a_start_that_failed_is_told_once_it_is_taken_again(fit, tmp_path, hook):
    """Wherever it failed before its first new batch was trained; and until it has gone well."""
    fit(epochs=1)
    assert fit(Raises(hook)) == []
    told = fit(Raises(hook))
    assert len(told) == 1
    assert "last.ckpt' once more" in told[0]
    assert f"ValueError: a fault in {hook}" in told[0]
    assert len(fit()) == 1
    assert not (tmp_path / RECORD).exists()
    assert fit(epochs=3) == []


@pytest.mark.parametrize(
    "callback",
    [Raises("on_train_batch_end", at=5), Raises("on_train_start", KeyboardInterrupt)],
    ids=["after a batch", "Ctrl-C"],
)
def test_other_ends_are_not_told(fit, tmp_path, callback):
    """A batch was trained, or the user has ended it."""
    fit(epochs=1)
    fit(callback)
    assert not (tmp_path / RECORD).exists()
    assert fit() == []


def test_a_path_is_the_users(fit, tmp_path):
    """A start from a path leaves no record, and is not told of one."""
    fit(epochs=1)
    path = tmp_path / "last.ckpt"
    fit(Raises("on_train_start"), ckpt_path=path)
    assert not (tmp_path / RECORD).exists()
    fit(Raises("on_train_start"))
    assert (tmp_path / RECORD).exists()
    assert fit(Raises("on_train_start"), ckpt_path=path) == []


def test_another_checkpoint_of_that_name_is_not_meant(fit, tmp_path):
    """The record names the save, not only the file."""
    fit(epochs=1)
    fit(Raises("on_train_start"))
    record = tmp_path / RECORD
    content = json.loads(record.read_text())
    record.write_text(json.dumps({**content, "saved_at": content["saved_at"] + 1}))
    assert fit() == []


@pytest.mark.parametrize("text", ["", "[]", "{", '{"checkpoint": "last.ckpt"}'])
def test_a_damaged_record_is_none(fit, tmp_path, text):
    """A start does not fail by it."""
    fit(epochs=1)
    (tmp_path / RECORD).write_text(text)
    assert fit() == []


def test_a_store_keeps_the_record_too(fit):
    """As it keeps the checkpoints."""
    pytest.importorskip("fsspec")
    folder = "memory://failed-start"
    fit(epochs=1, folder=folder)
    fit(Raises("on_train_start"), folder=folder)
    assert len(fit(folder=folder)) == 1
    assert fit(epochs=3, folder=folder) == []
