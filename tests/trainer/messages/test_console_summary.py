"""What a fit says as it is resumed and as it ends."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from new_processes import forget_trainings

from trainer_hooks import Callback, StopTraining
from trainer_hooks.callbacks import EarlyStopping, ModelCheckpoint, Timer
from trainer_hooks.errors import TerminationSignal
from trainer_hooks.loggers import CSVLogger
from trainer_hooks.testing import TinyModule
from trainer_hooks.trainer.messages.resume_line import typed_command

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Acts(Callback):
    """Do something in the fourth batch of the fit, the first of its second epoch."""

    def __init__(self, act: Callable[[Any], object]) -> None:
        self.act = act

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if trainer.progress.batches_completed == 4:
            self.act(trainer)


def raising(error: BaseException) -> Callable[[Any], object]:
    def act(trainer):
        raise error

    return act


@pytest.fixture
def told(bare, tmp_path: Path, monkeypatch, caplog):
    """A function that fits for three epochs and returns the lines that were told at the end."""
    monkeypatch.chdir(tmp_path)

    def fit(*callbacks, saver=None, ckpt_path=None, **options) -> list[str]:
        caplog.clear()
        saver = saver or ModelCheckpoint("checkpoints", monitor="val_loss")
        given = {"enable_checkpointing": True, "max_epochs": 3, "logger": CSVLogger("logs")}
        trainer = bare(saver, *callbacks, **{**given, **options})
        caplog.set_level("INFO", "trainer_hooks")
        with contextlib.suppress(KeyboardInterrupt, ValueError, TerminationSignal):
            trainer.fit(TinyModule(), ckpt_path=ckpt_path)
        return list(caplog.messages)

    return fit


FIT = "trainer.fit(TinyModule(), ckpt_path={!r})"
LAST = "checkpoints/epoch=2-step=9.ckpt"


def test_two_lines_at_the_end(told) -> None:
    """Why it ended, the best checkpoint and its value, the report; and how to go on."""
    ended, way_on = told()
    why, best, report = ended.split("; ")
    assert why == "fit ended at epoch 3, step 9: max_epochs=3 epochs are done"
    assert best.startswith(f"best checkpoint: {LAST!r} (val_loss 0.")
    assert report == "for a report: trainer-hooks report logs/trainer_logs/version_0"
    assert way_on == f"to go on, with a higher max_epochs: {FIT.format(LAST)}"


def test_the_call_can_be_pasted(bare, tmp_path, monkeypatch, caplog) -> None:
    """It is the user's own, on one line, with the checkpoint in the place of another."""
    monkeypatch.chdir(tmp_path)
    net, saver = TinyModule(), ModelCheckpoint("checkpoints")
    trainer = bare(saver, max_epochs=1, enable_checkpointing=True)
    fit = trainer.fit
    with caplog.at_level("INFO", "trainer_hooks"):
        trainer.fit(
            model=net,
            ckpt_path=None,  # ä, which is two bytes long
        )
        call = caplog.messages[-1].partition(": ")[2]
        assert call == f"trainer.fit(model=net, ckpt_path={'checkpoints/epoch=0-step=3.ckpt'!r})"
        trainer.max_epochs = 2
        eval(call)
        assert trainer.current_epoch == 2
        trainer.max_epochs = 3
        fit(net)
    last = "checkpoints/epoch=2-step=9.ckpt"
    assert caplog.messages[-1].endswith(f": fit(..., ckpt_path={last!r})")


@pytest.mark.parametrize(
    ("program", "machines", "words"),
    [
        ("train.py", "1", "torchrun --nproc-per-node 2 train.py --lr 1"),
        ("train.py", "3", "torchrun --nnodes 3 ... --nproc-per-node 2 train.py --lr 1"),
        ("jobs/__main__.py", "1", "torchrun --nproc-per-node 2 -m jobs --lr 1"),
        ("bin/train", "1", "torchrun --nproc-per-node 2 --no-python train --lr 1"),
    ],
)
def test_a_command_of_torchrun(monkeypatch, tmp_path, program, machines, words) -> None:
    """The command that goes on with a run of torchrun begins with torchrun."""
    file = tmp_path / program
    file.parent.mkdir(exist_ok=True)
    file.write_text("#!/bin/sh\n")
    file.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr("sys.argv", [str(file), "--lr", "1"])
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setenv("GROUP_WORLD_SIZE", machines)
    assert typed_command() == words


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda trainer: trainer.stop("it is late"), ": it is late"),
        (raising(StopTraining("no more")), ": no more"),
        (lambda trainer: setattr(trainer, "should_stop", True), ""),
    ],
    ids=["stop", "StopTraining", "should_stop"],
)
def test_a_stop_in_the_words_of_who_asked(told, act, words) -> None:
    """The reason that trainer.stop or StopTraining was given is in the first line."""
    ended, way_on = told(Acts(act))
    assert f"a stop was asked for{words}; best checkpoint: " in ended
    assert way_on.startswith("to go on: trainer.fit(")


def test_a_callback_says_why_it_stopped(told) -> None:
    """A run that EarlyStopping ended says by which metric, without verbose."""
    first, way_on = told(EarlyStopping("val_loss", patience=1, min_delta=1e9))
    assert first.startswith("fit ended at epoch 2, step 6: a stop was asked for: EarlyStopping: ")
    condition = "to go on, without EarlyStopping or with options of it that stop later: "
    assert way_on == condition + FIT.format("checkpoints/epoch=1-step=6.ckpt")


@pytest.mark.parametrize("is_option", [True, False])
def test_a_fit_whose_time_is_over(told, is_option) -> None:
    """The option is named where it was given, and the callback where that was."""
    limit = timedelta(milliseconds=100)
    callbacks = [Acts(lambda trainer: time.sleep(0.1)), *([] if is_option else [Timer(limit)])]
    saver = ModelCheckpoint("checkpoints", every_n_train_steps=1)
    *_, way_on = told(*callbacks, saver=saver, **({"max_time": limit} if is_option else {}))
    condition = "with a higher max_time: " if is_option else "without Timer or with options of it"
    assert way_on.startswith(f"to go on, {condition}")


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (raising(ValueError("broken")), "failed with ValueError"),
        (lambda trainer: os.kill(os.getpid(), signal.SIGINT), "was interrupted (Ctrl-C)"),
    ],
    ids=["error", "ctrl-c"],
)
def test_a_run_that_was_broken_off(told, act, words, handlers) -> None:
    """It names the newest checkpoint, what is lost since, and the word that goes on from it."""
    ended, way_on = told(Acts(act))
    why, newest, _ = ended.split("; ")
    assert why == f"fit {words} at epoch 1, step 4, after 1 batch"
    path = "checkpoints/epoch=0-step=3.ckpt"
    assert newest == f"newest checkpoint: '{path}' (saved 1 batch earlier)"
    assert way_on == f"to go on: {FIT.format(path)}"


@pytest.mark.parametrize(
    "act", [raising(ValueError("broken")), raising(KeyboardInterrupt())], ids=["error", "ctrl-c"]
)
def test_an_end_before_the_first_checkpoint_says_what_saves_one(told, act) -> None:
    """A fit with a saver that is cut short in its first epoch names the option for that moment."""
    (ended,) = told(Acts(act), saver=ModelCheckpoint("checkpoints", every_n_epochs=3))
    cure = "(ModelCheckpoint(save_on_exception=True) saves one at such a moment)"
    assert ended.split("; ")[1] == f"no checkpoint was saved {cure}"


def test_the_option_that_is_set_already_is_not_advised(told) -> None:
    """Where a saver saves on errors and could not, its option is no remedy."""

    class Fails(ModelCheckpoint):
        def on_exception(self, trainer, module, exception):
            pass

    saver = Fails("checkpoints", save_on_exception=True, every_n_epochs=9)
    (ended,) = told(Acts(raising(ValueError("broken"))), saver=saver)
    assert ended.split("; ")[1] == "no checkpoint was saved"


@pytest.mark.parametrize(
    ("options", "trigger"),
    [
        ({"every_n_epochs": 5}, "every_n_epochs=5"),
        ({"every_n_train_steps": 100}, "every_n_train_steps=100"),
        ({"train_time_interval": "1h"}, "train_time_interval='1:00:00'"),
        ({"save_interval": "99ba"}, "save_interval="),
        ({"save_top_k": 0}, "save_top_k=0"),
        ({"save_on_train_epoch_end": False}, "every_n_epochs=1, after validations"),
    ],
    ids=str,
)
def test_a_whole_fit_that_saved_nothing_names_the_trigger(told, options, trigger) -> None:
    """An error had nothing to do with it: the trigger never came due, and `save_last` helps."""
    (ended,) = told(saver=ModelCheckpoint("checkpoints", **options), limit_val_batches=0)
    why = ended.split("; ")[1]
    assert why.startswith(f"no checkpoint was saved (no save of ModelCheckpoint({trigger}")
    assert "came due: save_last=True saves one at the end" in why
    saved, _ = told(saver=ModelCheckpoint("s", save_last=True, **options), limit_val_batches=0)
    assert "no checkpoint" not in saved


def test_a_signal_loses_nothing(told) -> None:
    """After SIGTERM the checkpoint of that moment is named."""
    ended, _ = told(Acts(lambda trainer: os.kill(os.getpid(), signal.SIGTERM)))
    why, newest, _ = ended.split("; ")
    assert why.startswith("fit made way for SIGTERM at epoch 1, step 4")
    assert newest.endswith("preempted-epoch=1-step=4.ckpt' (saved at that moment)")


@pytest.mark.slow
def test_a_resume_says_where_it_goes_on_and_from_what(told, monkeypatch) -> None:
    """The next run names the file, and if it is broken off before it saved, the file again.

    Where the program asks for "auto" itself, its command is the way to go on.
    """
    told(Acts(raising(ValueError("broken"))))
    forget_trainings()
    monkeypatch.setattr("sys.argv", ["train.py", "--epochs", "3", "a b"])
    begun, ended, way_on = told(Acts(raising(ValueError("broken"))), ckpt_path="auto")
    newest = ended.split("; ")[1]
    assert begun.startswith(
        "resuming from 'checkpoints/epoch=0-step=3.ckpt' at the end of epoch 0, step "
    )
    assert newest.startswith("newest checkpoint: 'checkpoints/epoch=0-step=3.ckpt' (saved 1 ")
    assert way_on == "to go on: python train.py --epochs 3 'a b'"


def test_a_resume_says_that_an_epoch_was_ended_early(told) -> None:
    """From an early epoch's end the next epoch follows, from a batch's end the same one goes on.

    `max_steps` ends the second epoch after the first of its three batches.
    """

    class Seen(Callback):
        def __init__(self) -> None:
            self.batches: list[Any] = []

        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            self.batches.append((trainer.current_epoch, batch_idx))

    seen = [Seen() for _ in range(3)]
    told(seen[0], max_steps=4)
    at_end = "checkpoints/epoch=1-step=4.ckpt"
    begun, left_out = told(seen[1], ckpt_path=at_end)[:2]

    def each_step() -> ModelCheckpoint:
        return ModelCheckpoint("steps", filename="{step}", every_n_train_steps=1, save_top_k=-1)

    told(saver=each_step(), max_steps=4)
    at_batch = "steps/step=4.ckpt"
    goes_on = told(seen[2], saver=each_step(), ckpt_path=at_batch)[0]

    assert seen[0].batches == [(0, 0), (0, 1), (0, 2), (1, 0)]
    assert seen[1].batches == [(2, 0), (2, 1), (2, 2)]
    assert begun.startswith(f"resuming from {at_end!r} at the end of epoch 1, step 4 (")
    assert left_out.startswith("epoch 1 was ended after 1 of its 3 batches, and the others are ")
    assert seen[2].batches == [(1, 1), (1, 2), (2, 0), (2, 1), (2, 2)]
    assert goes_on.startswith(f"resuming from {at_batch!r} at epoch 1, step 4, after 1 batch (")


@pytest.mark.parametrize("saved_by", ["nobody", "hand", "a callback"])
def test_a_second_fit_says_that_it_begins_an_epoch_again(bare, tmp_path, caplog, saved_by) -> None:
    """After Ctrl-C inside an epoch its batches come once more, unless a checkpoint is passed."""
    seen: list[Any] = []
    interrupt = iter([KeyboardInterrupt])

    class Interrupts(Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            seen.append((trainer.current_epoch, batch_idx))
            if trainer.progress.batches_completed == 4 and (error := next(interrupt, None)):
                raise error

    has_saver = saved_by == "a callback"
    saver = ModelCheckpoint(tmp_path, filename="{step}", save_on_exception=True)
    callbacks = [Interrupts(), saver] if has_saver else [Interrupts()]
    trainer = bare(*callbacks, max_epochs=2, enable_checkpointing=has_saver)
    net = TinyModule()
    with caplog.at_level("INFO", "trainer_hooks"):
        with pytest.raises(KeyboardInterrupt):
            trainer.fit(net)
        saved = tmp_path / "step=4.ckpt"
        if saved_by == "hand":
            trainer.save_checkpoint(saved)
        assert saved.exists() == (saved_by != "nobody")
        content = saved.read_bytes() if saved.exists() else b""
        caplog.clear()
        trainer.fit(net)
    way = f"pass ckpt_path={str(saved)!r}"
    if saved_by == "nobody":
        way = "call save_checkpoint(path) first, and pass ckpt_path=path"
    assert caplog.messages[0] == (
        "epoch 1 was left after 1 batch: it begins again, with the batches that it has trained; "
        f"to go on inside it, {way}"
    )
    assert seen[3:] == [(1, 0), (1, 0), (1, 1), (1, 2)]
    assert trainer.global_step == trainer.estimated_stepping_batches == 7
    if saved_by != "nobody":
        (tmp_path / "inside.ckpt").write_bytes(content)
        trainer.fit(net, ckpt_path=tmp_path / "inside.ckpt")
        assert seen[7:] == [(1, 1), (1, 2)]
        assert trainer.global_step == trainer.estimated_stepping_batches == 6


def test_a_checkpoint_elsewhere_is_named(told) -> None:
    """What no word would find, as saved by hand in another folder, is given by its path."""

    class Saves(Acts):
        def on_batch_checkpoint(self, trainer, module):
            if trainer.progress.batches_completed == 4:
                trainer.save_checkpoint("mine/by_hand.ckpt")
                raise ValueError

    assert told(Saves(print))[-1] == f"to go on: {FIT.format('mine/by_hand.ckpt')}"


def test_without_checkpoints_it_is_short(told, bare, caplog) -> None:
    """There is no line on a folder that is not there, or on how to go on from nothing."""
    off = {"enable_checkpointing": False, "logger": False, "max_epochs": 3}
    with caplog.at_level("INFO", "trainer_hooks"):
        bare(**off).fit(TinyModule())
        assert len(caplog.messages) == 1
        caplog.clear()
        with pytest.raises(ValueError, match="broken"):
            bare(Acts(raising(ValueError("broken"))), **off).fit(TinyModule())
    (only,) = caplog.messages
    assert only.endswith("; no checkpoint was saved")


def test_a_resume_that_saves_nothing_gives_no_way_on(bare, tmp_path, monkeypatch, caplog) -> None:
    """The file that it began with lacks what was trained since, so it is not advised."""
    monkeypatch.chdir(tmp_path)
    first = bare(max_epochs=1)
    first.fit(TinyModule())
    first.save_checkpoint(tmp_path / "a.ckpt")
    with caplog.at_level("INFO", "trainer_hooks"):
        bare(max_epochs=2).fit(TinyModule(), ckpt_path=tmp_path / "a.ckpt")
    assert [line.split(" at ")[0] for line in caplog.messages[-2:]] == [
        "resuming from 'a.ckpt'",
        "fit ended",
    ]


def test_a_dry_run_and_an_error_before_the_training(told, bare, caplog) -> None:
    """A dry run says one line, and what fails before there is anything to train says none."""
    assert len(told(fast_dev_run=True, logger=False)) == 1

    class Broken(TinyModule):
        def configure_optimizers(self):
            raise ValueError("broken")

    caplog.clear()
    with caplog.at_level("INFO", "trainer_hooks"), pytest.raises(ValueError, match="broken"):
        bare().fit(Broken())
    assert caplog.messages == []


def test_evaluations_and_trials_say_nothing(bare, caplog) -> None:
    """validate and test print their metrics; a try inside a run is no run of its own."""
    with caplog.at_level("INFO", "trainer_hooks"):
        trainer = bare(Acts(print))
        trainer.validate(TinyModule())
        trainer.rehearsal().fit(TinyModule())
    assert caplog.messages == []
