from __future__ import annotations

from pathlib import Path

import pytest
import torch
from new_processes import forget_trainings

from trainer_hooks import Callback
from trainer_hooks.callbacks import OnExceptionCheckpoint
from trainer_hooks.errors import TrainerHooksWarning
from trainer_hooks.testing import TinyModule


@pytest.fixture
def bare(bare):
    """The bare trainer, in which callbacks that save may take part."""

    def make(*callbacks):
        forget_trainings()
        return bare(*callbacks, enable_checkpointing=None)

    return make


class Crash(Callback):
    """Raises once a number of batches is done."""

    def __init__(self, after=2, error=ZeroDivisionError):
        self.after = after
        self.error = error

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if trainer.progress.batches_completed == self.after:
            self.after = -1
            raise self.error("on purpose")


def crashed(bare, tmp_path, error=ZeroDivisionError):
    saver = OnExceptionCheckpoint(tmp_path / "kept", "crash")
    trainer = bare(saver, Crash(error=error))
    with pytest.raises(error):
        trainer.fit(TinyModule())
    return trainer, saver


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_it_saves_on_an_exception(bare, tmp_path, error):
    """The file holds what was trained until the exception, and has the name that was asked for."""
    _, saver = crashed(bare, tmp_path, error)
    assert saver.ckpt_path == str(tmp_path / "kept" / "crash.ckpt")
    assert torch.load(saver.ckpt_path, weights_only=True)["global_step"] == 2


def test_an_exception_outside_of_training_saves_nothing(bare, tmp_path):
    """A validation that fails, or a fit that fails before it begins, leaves no file."""
    saver = OnExceptionCheckpoint(tmp_path)
    module = TinyModule()
    module.on_validation_start = module.configure_model = lambda: 1 / 0
    with pytest.raises(ZeroDivisionError):
        bare(saver).validate(module)
    with pytest.raises(ZeroDivisionError):
        bare(saver).fit(module)
    assert not Path(saver.ckpt_path).exists()


def test_others_leave_the_file_alone(bare, tmp_path):
    """Neither a test, nor a validation, nor a fit that did not come from it removes the file."""
    trainer, saver = crashed(bare, tmp_path)
    trainer.test(TinyModule(), verbose=False)
    trainer.validate(TinyModule(), verbose=False)
    bare(OnExceptionCheckpoint(saver.dirpath, saver.filename)).test(TinyModule(), verbose=False)
    bare(OnExceptionCheckpoint(saver.dirpath, saver.filename)).fit(TinyModule())
    assert Path(saver.ckpt_path).exists()


def test_a_fit_that_came_from_it_removes_it_at_its_end(bare, tmp_path):
    """`ckpt_path="auto"` goes on from the file, which stays until that fit has gone through."""
    _, saver = crashed(bare, tmp_path)
    again = OnExceptionCheckpoint(saver.dirpath, saver.filename)
    trainer = bare(again, Crash(after=3, error=RuntimeError))
    with pytest.raises(RuntimeError):
        trainer.fit(TinyModule(), ckpt_path="auto")
    assert trainer.ckpt_path == saver.ckpt_path
    assert torch.load(saver.ckpt_path, weights_only=True)["global_step"] == 3
    final = bare(OnExceptionCheckpoint(saver.dirpath, saver.filename))
    with pytest.warns(TrainerHooksWarning, match="once more"):
        final.fit(TinyModule(), ckpt_path="auto")
    assert final.global_step == 3
    assert not Path(saver.ckpt_path).exists()


def test_a_file_that_was_named_is_never_removed(bare, tmp_path):
    """Who resumes from the file by its path keeps it."""
    _, saver = crashed(bare, tmp_path)
    again = OnExceptionCheckpoint(saver.dirpath, saver.filename)
    bare(again).fit(TinyModule(), ckpt_path=saver.ckpt_path)
    assert Path(saver.ckpt_path).exists()


def test_two_of_them(bare, tmp_path):
    """Two with different names both save, under state keys of their own."""
    savers = [OnExceptionCheckpoint(tmp_path, name) for name in ("a", "b")]
    with pytest.raises(ZeroDivisionError):
        bare(*savers, Crash()).fit(TinyModule())
    assert sorted(path.name for path in tmp_path.glob("*.ckpt")) == ["a.ckpt", "b.ckpt"]
    assert savers[0].state_key != savers[1].state_key


def test_a_second_fit_of_the_same_trainer(bare, tmp_path):
    """A trainer that goes on in memory after its own crash removes the file when it is done."""
    trainer, saver = crashed(bare, tmp_path)
    module = trainer.module
    trainer.fit(module)
    assert not Path(saver.ckpt_path).exists()
