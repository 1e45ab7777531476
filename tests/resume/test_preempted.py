"""A scheduler's signal: the batch is done and saved exactly, and a later run goes on from there."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import torch
from quiet_trainers import quiet_trainers

from trainer_hooks import Callback, StopTraining
from trainer_hooks.callbacks import Checkpoint, ModelCheckpoint
from trainer_hooks.checkpoint.file import read_checkpoint
from trainer_hooks.errors import CheckpointError, TerminationSignal, TrainerHooksWarning

BATCHES = [torch.full((2, 2), float(number)) for number in range(1, 5)]


class Sends(Callback):
    """Sends a signal after a number of batches, or in a hook."""

    def __init__(self, at: int = -1, hook: str = "on_train_batch_start", signum=signal.SIGTERM):
        self.at, self.hook, self.signum = at, hook, signum
        self.events: list[str] = []

    def run_event(self, event, trainer, *args):
        self.events.append(event)
        if event == self.hook and trainer.progress.batches_completed == self.at:
            self.at = -1
            os.kill(os.getpid(), self.signum)


@pytest.fixture
def trainer_of(tmp_path):
    """Return a function that makes a trainer as a new process would."""
    return quiet_trainers(tmp_path, epochs=2)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def preempted(trainer, module, ckpt_path="auto", code=143) -> None:
    with pytest.raises(TerminationSignal) as caught:
        trainer.fit(module, BATCHES, ckpt_path=ckpt_path)
    assert caught.value.code == code


@pytest.mark.parametrize("options", [{}, {"save_last": True}, {"save_last": "link"}], ids=str)
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGUSR1], ids=["SIGTERM", "SIGUSR1"])
def test_a_run_that_made_way_goes_on(trainer_of, Tiny, tmp_path, options, signum):
    """The file is what "auto" finds, and the first save of the resumed run replaces it."""

    def saver():
        return ModelCheckpoint(tmp_path / "c", every_n_epochs=1, **options)

    trainer = trainer_of(saver(), Sends(5, signum=signum))
    preempted(trainer, Tiny(), code=128 + signum)
    assert trainer.global_step == 6
    expected = "last" if options.get("save_last") is True else "preempted-epoch=1-step=6"
    again = trainer_of(saver(), epochs=3)
    again.fit(Tiny(), BATCHES, ckpt_path="auto")
    assert Path(again.ckpt_path).stem == expected
    assert again.global_step == 12
    last = {"last.ckpt"} if options else set()
    assert set(names(tmp_path / "c")) == {"epoch=2-step=12.ckpt", *last}


@pytest.mark.parametrize("save_last", [None, True, "link"])
def test_a_run_that_made_way_before_its_first_batch(trainer_of, Tiny, tmp_path, save_last):
    """The resumed run takes over the file of step 0: none of untrained weights is left."""

    def saver():
        return ModelCheckpoint(tmp_path / "c", save_last=save_last, every_n_train_steps=3)

    preempted(trainer_of(saver(), Sends(0, "on_train_start")), Tiny())
    left = {None: set(), True: set(), "link": {"preempted-epoch=0-step=0.ckpt"}}[save_last]
    assert set(names(tmp_path / "c")) == left | (
        {"last.ckpt"} if save_last else {"preempted-epoch=0-step=0.ckpt"}
    )
    trainer_of(saver()).fit(Tiny(), BATCHES, ckpt_path="auto")
    assert set(names(tmp_path / "c")) == {"epoch=1-step=6.ckpt"} | (
        {"last.ckpt"} if save_last else set()
    )
    if save_last:
        assert read_checkpoint(tmp_path / "c" / "last.ckpt")["global_step"] == 6


def test_a_link_that_a_signal_made_is_not_to_be_deleted(trainer_of, Tiny, tmp_path):
    """The resumed run's first file lists the signal's file as the only one more to delete."""

    def to_delete(name, *, is_cut):
        def saver():
            return ModelCheckpoint(tmp_path / name, save_last="link", every_n_train_steps=3)

        if is_cut:
            preempted(trainer_of(saver(), Sends(0, "on_train_start")), Tiny())
        trainer_of(saver(), epochs=1).fit(Tiny(), BATCHES, ckpt_path="auto" if is_cut else None)
        states = read_checkpoint(tmp_path / name / "epoch=0-step=3.ckpt")["callbacks"]
        (state,) = (state for key, state in states.items() if key.startswith("ModelCheckpoint"))
        return [Path(path).name for path in state["obsolete"]]

    assert to_delete("uncut", is_cut=False) == []
    assert to_delete("cut", is_cut=True) == ["preempted-epoch=0-step=0.ckpt"]


def test_which_fit_begins_a_training(trainer_of, Tiny, tmp_path):
    """It is the first fit of a module without a checkpoint, also where that is of step 0."""
    told = []

    class Asks(Callback):
        def on_fit_start(self, trainer, module):
            told.append((trainer.progress.is_new_training, trainer.progress.is_untrained))

    def saver():
        return ModelCheckpoint(tmp_path / "c", every_n_epochs=1)

    preempted(trainer_of(Asks(), saver(), Sends(0, "on_train_start")), Tiny())
    trainer, module = trainer_of(Asks(), saver(), epochs=1), Tiny()
    trainer.fit(module, BATCHES, ckpt_path="auto")
    trainer.max_epochs = 2
    trainer.fit(module, BATCHES)
    trainer_of(Asks(), saver(), epochs=3).fit(Tiny(), BATCHES, ckpt_path="auto")
    trainer.fit(Tiny(), BATCHES)
    assert told == [(True, True), (False, True), (False, False), (False, False), (True, True)]


@pytest.mark.parametrize("save_weights_only", [False, True])
def test_the_last_checkpoint_is_the_temporary_one(trainer_of, Tiny, tmp_path, save_weights_only):
    """A link called last leads to it, until the resumed run saves, also where it stops again."""

    def saver():
        last = True if save_weights_only else "link"
        options = {"save_last": last, "save_weights_only": save_weights_only}
        return ModelCheckpoint(tmp_path / "c", every_n_train_steps=4, **options)

    last = tmp_path / "c" / "last.ckpt"
    for batches in (4, 5):
        preempted(trainer_of(saver(), Sends(batches)), Tiny())
        assert last.readlink().name == f"preempted-epoch=1-step={batches + 1}.ckpt"
    trainer_of(saver()).fit(Tiny(), BATCHES, ckpt_path="last")
    assert names(tmp_path / "c") == ["epoch=1-step=8.ckpt", "last.ckpt"]
    assert read_checkpoint(last)["global_step"] == 8


@pytest.mark.slow
def test_again_and_again(trainer_of, Tiny, tmp_path):
    """Sent away after each batch, it still trains, and leaves no file but the last one."""
    for step in range(1, 8):
        trainer = trainer_of(ModelCheckpoint(tmp_path / "c"), Sends(step - 1))
        preempted(trainer, Tiny())
        assert trainer.global_step == step
        left = {f"preempted-epoch={step // 4}-step={step}.ckpt"}
        assert set(names(tmp_path / "c")) - {"epoch=0-step=4.ckpt"} == left
    trainer_of(ModelCheckpoint(tmp_path / "c")).fit(Tiny(), BATCHES, ckpt_path="auto")
    assert names(tmp_path / "c") == ["epoch=1-step=8.ckpt"]


def test_a_file_that_the_user_names_stays(trainer_of, Tiny, tmp_path):
    """A resume from it by its path does not remove it."""
    preempted(trainer_of(ModelCheckpoint(tmp_path / "c"), Sends(5)), Tiny())
    path = tmp_path / "c" / "preempted-epoch=1-step=6.ckpt"
    trainer_of(ModelCheckpoint(tmp_path / "c")).fit(Tiny(), BATCHES, ckpt_path=path)
    assert path.name in names(tmp_path / "c")


def test_a_full_file_where_weights_alone_are_kept(trainer_of, Tiny, tmp_path):
    """A callback that keeps weights alone still saves all that a resume needs."""
    options = {"save_weights_only": True, "save_last": True, "every_n_train_steps": 1}
    preempted(trainer_of(ModelCheckpoint(tmp_path / "c", **options), Sends(5)), Tiny())
    again = trainer_of(ModelCheckpoint(tmp_path / "c", **options))
    again.fit(Tiny(), BATCHES, ckpt_path="last")
    assert Path(again.ckpt_path).name == "preempted-epoch=1-step=6.ckpt"
    assert again.global_step == 8
    assert names(tmp_path / "c") == ["epoch=1-step=8.ckpt", "last.ckpt"]


def test_the_end_hooks_fire_after_the_save_and_the_epoch_stays_open(trainer_of, Tiny, tmp_path):
    """The epoch is neither ended nor counted, in the file or by hooks; no exception is told."""
    sends = Sends(5)
    trainer = trainer_of(ModelCheckpoint(tmp_path / "c", every_n_train_steps=100), sends)
    preempted(trainer, Tiny())
    end = sends.events.index("on_save_checkpoint")
    assert sends.events[end:] == [
        "on_save_checkpoint",
        "on_checkpoint_saved",
        "on_train_end",
        "on_fit_end",
        "teardown",
    ]
    assert sends.events.count("on_train_epoch_start") == 2
    assert sends.events.count("on_train_epoch_end") == 1
    (path,) = (tmp_path / "c").iterdir()
    progress = read_checkpoint(path)["trainer_hooks"]["progress"]
    assert (progress["epochs_completed"], progress["batches_in_epoch"]) == (1, 2)
    assert trainer.interrupted


def test_one_callback_saves(trainer_of, Tiny, tmp_path):
    """Of several callbacks the first that can saves: the time may be short."""
    first = ModelCheckpoint(tmp_path / "a")
    second = ModelCheckpoint(tmp_path / "b", every_n_epochs=2)
    preempted(trainer_of(Checkpoint(), first, second, Sends(0)), Tiny())
    assert names(tmp_path / "a") == ["preempted-epoch=0-step=1.ckpt"]
    assert not (tmp_path / "b").exists()


def test_a_callback_of_the_users_own(trainer_of, Tiny, tmp_path):
    """One that can save on request does."""

    class Own(Checkpoint):
        def save_now(self, trainer, module):
            trainer.save_checkpoint(tmp_path / "own.ckpt")

    preempted(trainer_of(Own(), Sends(0)), Tiny(), ckpt_path=None)
    assert read_checkpoint(tmp_path / "own.ckpt")["global_step"] == 1


@pytest.mark.parametrize("callbacks", [(), (Checkpoint,)], ids=["none", "cannot"])
def test_where_nothing_can_save(trainer_of, Tiny, callbacks):
    """It is said, and the run ends in order all the same."""
    sends = Sends(0)
    made = [kind() for kind in callbacks]
    trainer = trainer_of(sends, *made, **({} if made else {"enable_checkpointing": False}))
    with pytest.warns(TrainerHooksWarning, match=r"SIGTERM: .*so nothing was saved"):
        preempted(trainer, Tiny(), ckpt_path=None)
    assert sends.events[-3:] == ["on_train_end", "on_fit_end", "teardown"]


def test_a_save_that_fails_is_the_error(trainer_of, Tiny, tmp_path):
    """A run that cannot be saved does not end as if it had been."""

    class InTheWay(Callback):
        def on_train_start(self, trainer, module):
            (tmp_path / "c").write_text("in the way")

    sends = Sends(0)
    with pytest.raises(CheckpointError, match="could not be written"):
        trainer_of(ModelCheckpoint(tmp_path / "c"), InTheWay(), sends).fit(Tiny(), BATCHES)
    assert sends.events[-2:] == ["on_exception", "teardown"]
    assert "on_train_end" not in sends.events


def test_a_second_signal_during_the_save_stops_at_once(trainer_of, Tiny, tmp_path, monkeypatch):
    """It breaks the save off: nothing half-written is left, and the earlier file is."""
    save = torch.save

    def slow(content, file):
        file.write(b"half")
        if content["global_step"] == 6:
            os.kill(os.getpid(), signal.SIGTERM)
        save(content, file)

    monkeypatch.setattr(torch, "save", slow)
    sends = Sends(5)
    preempted(trainer_of(ModelCheckpoint(tmp_path / "c"), sends), Tiny(), ckpt_path=None)
    assert sends.events[-2:] == ["on_exception", "teardown"]
    assert names(tmp_path / "c") == ["epoch=0-step=4.ckpt"]


def test_a_signal_when_the_training_is_over(trainer_of, Tiny, tmp_path):
    """What is saved already is not saved again; the process still leaves with the signal's code."""
    sends = Sends(8, "on_train_end")
    preempted(trainer_of(ModelCheckpoint(tmp_path / "c"), sends), Tiny(), ckpt_path=None)
    assert sends.events[-3:] == ["on_train_end", "on_fit_end", "teardown"]
    assert names(tmp_path / "c") == ["epoch=1-step=8.ckpt"]


def test_a_signal_in_the_last_batch(trainer_of, Tiny, tmp_path):
    """What no callback was about to save is saved, and the resumed run has nothing more to do."""

    def saver():
        return ModelCheckpoint(tmp_path / "c", every_n_train_steps=100)

    sends = Sends(7)
    preempted(trainer_of(saver(), sends), Tiny(), ckpt_path=None)
    assert sends.events.count("on_train_epoch_end") == 2
    assert names(tmp_path / "c") == ["preempted-epoch=2-step=8.ckpt"]
    trainer = trainer_of(saver())
    with pytest.warns(TrainerHooksWarning, match="nothing to do: max_epochs=2 epochs are done"):
        trainer.fit(Tiny(), BATCHES, ckpt_path="auto")
    assert trainer.global_step == 8


def test_a_signal_in_the_last_validation_is_gone_on_with(trainer_of, Tiny, tmp_path):
    """Where only the last epoch's end was left, the resumed run does that and no batch."""

    class Net(Tiny):
        def validation_step(self, batch, batch_idx):
            self.log("loss", self.layer(batch).mean())

    sends = Sends(8, "on_validation_batch_end")
    trainer = trainer_of(ModelCheckpoint(tmp_path / "c"), sends, num_sanity_val_steps=0)
    with pytest.raises(TerminationSignal):
        trainer.fit(Net(), BATCHES, BATCHES[:2])
    again = Sends()
    trainer = trainer_of(ModelCheckpoint(tmp_path / "c"), again)
    trainer.fit(Net(), BATCHES, BATCHES[:2], ckpt_path="auto")
    assert "on_train_batch_start" not in again.events
    assert again.events.count("on_validation_batch_end") == 2
    assert again.events.count("on_train_epoch_end") == 1
    assert names(tmp_path / "c") == ["epoch=1-step=8.ckpt"]


def test_a_signal_before_the_training(trainer_of, Tiny, tmp_path):
    """In the sanity check there is nothing to save yet, and no training to end."""

    class Net(Tiny):
        def validation_step(self, batch, batch_idx):
            pass

    sends = Sends(0, "on_validation_batch_start")
    trainer = trainer_of(ModelCheckpoint(tmp_path / "c"), sends)
    with pytest.raises(TerminationSignal):
        trainer.fit(Net(), BATCHES, BATCHES)
    assert sends.events[-2:] == ["on_fit_end", "teardown"]
    assert "on_train_end" not in sends.events
    assert not (tmp_path / "c").exists()


def test_a_signal_while_a_stop_is_closed(trainer_of, Tiny, tmp_path):
    """A run that was stopped by raising, and then told to go, still ends all that began."""

    class Net(Tiny):
        def training_step(self, batch, batch_idx):
            if batch_idx == 2:
                raise StopTraining("enough")
            return super().training_step(batch, batch_idx)

        def validation_step(self, batch, batch_idx):
            pass

    sends = Sends(3, "on_validation_batch_start")
    trainer = trainer_of(ModelCheckpoint(tmp_path / "c"), sends, num_sanity_val_steps=0)
    with pytest.raises(TerminationSignal):
        trainer.fit(Net(), BATCHES, BATCHES)
    assert sends.events[-3:] == ["on_train_end", "on_fit_end", "teardown"]
    assert len(names(tmp_path / "c")) == 1


def test_forked_children_do_not_heed_it(trainer_of, Tiny, tmp_path):
    """SIGUSR1 that reaches a forked child of the run is passed over there."""
    codes = []

    class Forks(Callback):
        def on_train_start(self, trainer, module):
            child = os.fork()
            if child == 0:
                os.kill(os.getpid(), signal.SIGUSR1)
                os._exit(7)
            codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    trainer_of(ModelCheckpoint(tmp_path / "c"), Forks()).fit(Tiny(), BATCHES)
    assert codes == [7]


@pytest.mark.parametrize("options", [{}, {"save_last": "link"}, {"save_last": True}], ids=str)
def test_a_signal_in_the_last_batch_leaves_no_file_beside_the_final_one(
    trainer_of, Tiny, tmp_path, options
):
    """A resume with nothing left to save deletes the signal's file, once another holds as much."""
    folder = tmp_path / "c"

    def saver():
        return ModelCheckpoint(folder, **options)

    preempted(trainer_of(saver(), Sends(8, "on_train_epoch_end")), Tiny())
    with pytest.warns(TrainerHooksWarning, match="nothing to do"):
        trainer_of(saver()).fit(Tiny(), BATCHES, ckpt_path="auto")
    last = {"last.ckpt"} if options else set()
    assert set(names(folder)) == {"epoch=1-step=8.ckpt", *last}
    for name in names(folder):  # a link leads to a file that is there
        assert read_checkpoint(folder / name)["global_step"] == 8


def test_the_only_file_of_the_end_stays(trainer_of, Tiny, tmp_path):
    """Where the best file is an older one, that of the signal is the end of the training."""
    folder = tmp_path / "c"

    class Worse(Tiny):
        def on_train_epoch_end(self):
            self.log("worse", float(self.current_epoch))

    def saver():
        return ModelCheckpoint(folder, monitor="worse")

    preempted(trainer_of(saver(), Sends(8, "on_train_epoch_end")), Worse())
    with pytest.warns(TrainerHooksWarning, match="nothing to do"):
        trainer_of(saver()).fit(Worse(), BATCHES, ckpt_path="auto")
    kept = {read_checkpoint(folder / name)["global_step"] for name in names(folder)}
    assert kept == {4, 8}
