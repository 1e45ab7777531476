"""RecordingCallback and run_hooks: what they write down and return."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainer_hooks import Callback
from trainer_hooks.callbacks import LambdaCallback, ModelCheckpoint, TQDMProgressBar
from trainer_hooks.errors import CallbackError, OptionError
from trainer_hooks.testing import RecordingCallback, TinyModule, run_hooks


def test_each_call_is_recorded_with_arguments_and_counters(bare) -> None:
    """A call has the hook's name, its arguments less trainer and module, and the counters."""
    recording = RecordingCallback()
    bare(recording, max_epochs=2).fit(TinyModule())
    assert recording.names[:3] == ["on_init_start", "on_init_end", "setup"]
    assert recording.count("on_train_epoch_end") == 2
    assert recording.count("on_predict_start") == 0
    ends = recording.of("on_train_batch_end")
    assert [(call.epoch, call.batch, call.step) for call in ends] == [
        (0, 1, 1), (0, 2, 2), (0, 3, 3), (1, 4, 4), (1, 5, 5), (1, 6, 6),
    ]  # fmt: skip
    outputs, batch, batch_idx = ends[1].args
    assert set(outputs) == {"loss"}
    assert batch[0].shape == (2, 2)
    assert batch_idx == 1
    assert recording.of("setup")[0].args == ("fit",)
    assert len(recording.calls) == len(recording.names)
    recording.clear()
    assert recording.names == []


def test_a_subclass_may_have_hooks(bare) -> None:
    """Hooks of a subclass run, after they were written down."""

    class Mine(RecordingCallback):
        def on_fit_start(self, trainer, module):
            assert self.names[-1] == "on_fit_start"
            self.has_run = True

    mine = Mine()
    bare(mine).fit(TinyModule())
    assert mine.has_run


@pytest.mark.parametrize("entry_point", ["fit", "validate", "test", "predict"])
def test_run_hooks_drives_each_entry_point(entry_point) -> None:
    """All hooks of a run are called, from the trainer's making to its close."""
    recording = RecordingCallback()
    names = run_hooks(recording, entry_point)
    assert names == recording.names
    assert names[0] == "on_init_start"
    assert names[-2:] == ["on_close", "on_post_close"]
    phase = {"fit": "train", "validate": "validation"}.get(entry_point, entry_point)
    assert names.count(f"on_{phase}_batch_end") == (3 if entry_point == "fit" else 2)
    assert recording.of("setup")[0].args == (entry_point,)


def test_run_hooks_returns_what_the_callback_listens_to() -> None:
    """Only hooks that the callback overrides are in the list, older names of them included."""

    class Some(Callback):
        def on_train_epoch_end(self, trainer, module):
            pass

        def on_configure_sharded_model(self, trainer, module):
            pass

        def on_test_end(self, trainer, module):
            pass

    assert run_hooks(Some(), "fit") == ["on_configure_model", "on_train_epoch_end"]
    two = run_hooks(Some(), "fit", trainer_options={"max_epochs": 2})
    assert two.count("on_train_epoch_end") == 2
    assert run_hooks(Callback(), "fit") == []


def test_an_error_comes_through_with_its_hook() -> None:
    """What a hook raises leaves run_hooks as it is, with a note that names the hook."""

    def fail(*args):
        raise ZeroDivisionError("on purpose")

    with pytest.raises(ZeroDivisionError, match="on purpose") as caught:
        run_hooks(LambdaCallback(on_validation_end=fail), "validate")
    assert "raised in hook 'on_validation_end'" in caught.value.__notes__[0]


def test_run_hooks_refuses_what_it_cannot_run() -> None:
    """A wrong entry point and a class in place of a callback are named, with what to write."""
    with pytest.raises(OptionError, match=r"Did you mean 'validate'\?"):
        run_hooks(Callback(), "validation")
    with pytest.raises(CallbackError, match="Write RecordingCallback"):
        run_hooks(RecordingCallback, "fit")


def test_run_hooks_writes_nothing_here(tmp_path, monkeypatch) -> None:
    """Files go to a folder that is gone afterwards, and the working directory is the same."""
    monkeypatch.chdir(tmp_path)
    saver = ModelCheckpoint()
    run_hooks(saver, "fit")
    assert saver.best_model_path
    assert list(tmp_path.iterdir()) == []
    assert Path.cwd() == tmp_path
    run_hooks(TQDMProgressBar(), "fit")
