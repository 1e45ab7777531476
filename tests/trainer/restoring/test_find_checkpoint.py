"""ckpt_path="last", "best" and "auto" find the right file, in this process and in a new one."""

from __future__ import annotations

import os
import shutil
import time
import warnings
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from quiet_trainers import quiet_trainers

from trainer_hooks import Callback
from trainer_hooks.callbacks import Checkpoint, ModelCheckpoint
from trainer_hooks.checkpoint.file import read_checkpoint, summarize, write_checkpoint
from trainer_hooks.errors import (
    CheckpointError,
    CheckpointNotFoundError,
    OptionError,
    TrainerHooksWarning,
)
from trainer_hooks.loggers.csv import CSVLogger

BATCHES = [torch.full((2, 2), float(number)) for number in range(1, 5)]
DAY = 86_400


@pytest.fixture
def trainer_of(tmp_path):
    """Return a function that makes a trainer as a new process would."""
    return quiet_trainers(tmp_path, epochs=1)


@pytest.fixture
def net(Tiny):
    class LogsSmallLoss(Tiny):
        def training_step(self, batch, batch_idx):
            loss = self.layer(batch).square().mean() * 1e-3
            self.log("loss", loss)
            return loss

    return LogsSmallLoss


def saver(folder=None, **options) -> ModelCheckpoint:
    return ModelCheckpoint(folder, **{"save_top_k": -1, "every_n_train_steps": 1, **options})


def damage(path) -> None:
    """Flip a bit of a weight."""
    content = bytearray(Path(path).read_bytes())
    content[len(content) // 3] ^= 1
    content[200] ^= 1
    Path(path).write_bytes(content)


def resumed(trainer, module, ckpt_path) -> str | None:
    """Fit, and return the name of the file that it went on from."""
    trainer.fit(module, BATCHES, ckpt_path=ckpt_path)
    return None if trainer.ckpt_path is None else Path(trainer.ckpt_path).name


# --- last ---


@pytest.mark.parametrize("ckpt_path", ["last", "auto"])
def test_the_newest_is_found_in_a_new_process(trainer_of, net, tmp_path, ckpt_path):
    """The newest checkpoint of the folder is what a new trainer goes on from."""
    trainer_of(saver(tmp_path / "c")).fit(net(), BATCHES)
    trainer = trainer_of(saver(tmp_path / "c"), epochs=2)
    assert resumed(trainer, net(), ckpt_path) == "epoch=0-step=4.ckpt"
    assert trainer.global_step == 8


def test_times_of_files_may_lie(trainer_of, net, tmp_path):
    """What counts is when a checkpoint was saved, which it says itself; a copy has another time."""
    trainer_of(saver(tmp_path / "c")).fit(net(), BATCHES)
    for age, path in enumerate(sorted((tmp_path / "c").iterdir())):
        os.utime(path, (time.time() - age * DAY,) * 2)
    assert resumed(trainer_of(saver(tmp_path / "c"), epochs=2), net(), "last").endswith("=4.ckpt")


def test_a_run_that_went_back_is_gone_on_with(trainer_of, net, tmp_path):
    """After a resume from an older checkpoint, the newest is that run's, though it got less far."""
    trainer_of(saver(tmp_path / "c")).fit(net(), BATCHES)
    back = trainer_of(saver(tmp_path / "c"), max_steps=3)
    back.fit(net(), BATCHES, ckpt_path=tmp_path / "c" / "epoch=0-step=2.ckpt")
    found = resumed(trainer_of(saver(tmp_path / "c")), net(), "last")
    assert found == "epoch=0-step=3-v1.ckpt"


def test_a_clock_that_was_set_back_changes_nothing(trainer_of, net, tmp_path, monkeypatch):
    """A run resumed where the clock is behind saves checkpoints that still count as newer."""
    trainer_of(saver(tmp_path / "c")).fit(net(), BATCHES)
    now = time.time_ns
    with monkeypatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: now() - 10 * DAY * 10**9)
        resumed(trainer_of(saver(tmp_path / "c"), epochs=2), net(), "last")
    assert resumed(trainer_of(saver(tmp_path / "c"), epochs=3), net(), "last").endswith("=8.ckpt")


def test_earlier_runs_of_a_logger_are_found(trainer_of, net, tmp_path):
    """What an earlier run left in its logger's folder is found, and the run goes on there."""
    for epochs in (1, 2, 3):
        trainer = trainer_of(epochs=epochs, logger=CSVLogger(tmp_path))
        trainer.fit(net(), BATCHES, ckpt_path="auto")
        assert trainer.global_step == 4 * epochs
        assert trainer.checkpoint_callback.dirpath.endswith("version_0/checkpoints")
    assert trainer.ckpt_path.endswith("version_0/checkpoints/epoch=1-step=8.ckpt")


@pytest.mark.parametrize("folder", ["sd", None])
def test_earlier_runs_of_a_logger_of_ones_own_are_found(
    folder, trainer_of, net, tmp_path, MemoryLogger
):
    """Each version has a folder; a run with another version goes on where the last one ended."""
    save_dir = None if folder is None else str(tmp_path / folder)
    for epochs, version, word in ((1, 7, "auto"), (2, 7, "last"), (3, "eight", "auto")):
        attributes = {"save_dir": save_dir, "name": "my", "version": version}
        logger = type("Own", (MemoryLogger,), attributes)()
        trainer = trainer_of(epochs=epochs, logger=logger)
        moved = pytest.warns(TrainerHooksWarning, match="the checkpoint's was")
        with moved if version == "eight" else nullcontext():
            trainer.fit(net(), BATCHES, ckpt_path=word)
        assert trainer.global_step == 4 * epochs
    runs = tmp_path / (folder or "") / "my"
    assert Path(trainer.ckpt_path).parent == runs / "version_7" / "checkpoints"
    assert {path.name for path in runs.iterdir()} == {"version_7", "eight"}


def test_folders_beside_a_loggers_own_are_not_searched(trainer_of, net, tmp_path, MemoryLogger):
    """A logger whose folder is the user's own does not lead to the user's other folders."""

    class Fixed(MemoryLogger):
        save_dir = str(tmp_path / "mine")

    trainer_of(saver(tmp_path / "other" / "checkpoints")).fit(net(), BATCHES)
    trainer = trainer_of(logger=Fixed())
    assert resumed(trainer, net(), "auto") is None


def test_names_that_lead_into_folders_are_found(trainer_of, net, tmp_path):
    """A filename with a folder in it is looked for where it was saved."""
    options = {"filename": "at/{step}", "every_n_train_steps": 2}
    trainer_of(saver(tmp_path / "c", **options)).fit(net(), BATCHES)
    assert resumed(trainer_of(saver(tmp_path / "c", **options)), net(), "last") == "step=4.ckpt"


def test_in_the_same_process(trainer_of, net, tmp_path):
    """A second fit of the same trainer finds what the first one saved, without `save_last`."""
    trainer = trainer_of(saver(tmp_path / "c"))
    trainer.fit(net(), BATCHES)
    trainer.max_epochs = 2
    assert resumed(trainer, net(), "last") == "epoch=0-step=4.ckpt"


def test_weights_alone_are_no_resume(trainer_of, net, tmp_path):
    """A file of weights is passed over by fit, and good enough for an evaluation."""
    trainer = trainer_of(saver(tmp_path / "c"))
    trainer.fit(net(), BATCHES)
    trainer.save_checkpoint(tmp_path / "c" / "weights.ckpt", weights_only=True)
    assert resumed(trainer_of(saver(tmp_path / "c")), net(), "last") == "epoch=0-step=4.ckpt"

    class Predicts(net):
        def predict_step(self, batch, batch_idx):
            return self.layer(batch)

    trainer = trainer_of(saver(tmp_path / "c"))
    trainer.predict(Predicts(), BATCHES, ckpt_path="last")
    assert Path(trainer.ckpt_path).name == "weights.ckpt"


def test_unfinished_and_hidden_files_are_not_looked_at(trainer_of, net, tmp_path):
    """What a killed save left, or a hidden copy, is no candidate."""
    trainer_of(saver(tmp_path / "c")).fit(net(), BATCHES)
    newest = tmp_path / "c" / "epoch=0-step=4.ckpt"
    shutil.copy(newest, tmp_path / "c" / ".copy.ckpt")
    newest.rename(tmp_path / "c" / ".epoch=0-step=4.ckpt.abc.trainer_hooks.part")
    assert resumed(trainer_of(saver(tmp_path / "c")), net(), "last") == "epoch=0-step=3.ckpt"


@pytest.mark.parametrize("callbacks", [(), (Checkpoint,)], ids=["none", "of no folder"])
def test_nothing_to_find(trainer_of, net, tmp_path, callbacks):
    """Without a checkpoint "last" and "best" say so, and "auto" starts anew."""
    made = [kind() for kind in callbacks]
    for asked in ("last", "best"):
        with pytest.raises(CheckpointNotFoundError, match=f"ckpt_path='{asked}'"):
            trainer_of(*made).fit(net(), BATCHES, ckpt_path=asked)
    trainer = trainer_of(*made)
    assert resumed(trainer, net(), "auto") is None
    assert trainer.global_step == 4


def test_the_empty_folder_is_named(trainer_of, net, tmp_path):
    """Where the user named a folder, the error shows it: the name may be misspelt."""
    with pytest.raises(CheckpointNotFoundError, match=r"Looked in '.*missing'"):
        trainer_of(saver(tmp_path / "missing")).fit(net(), BATCHES, ckpt_path="last")


def test_a_saver_of_the_users_own_can_take_part(trainer_of, net, tmp_path):
    """A checkpoint callback that names its files has them found."""

    class Own(Checkpoint):
        def on_train_end(self, trainer, module):
            trainer.save_checkpoint(tmp_path / "own.file")

        def candidates(self, trainer):
            return [str(tmp_path / "own.file"), str(tmp_path / "gone.file")]

    trainer_of(Own()).fit(net(), BATCHES)
    assert resumed(trainer_of(Own(), epochs=2), net(), "last") == "own.file"


# --- damage, and other models ---


@pytest.mark.parametrize("ckpt_path", ["last", "auto"])
def test_damaged_files_are_passed_over_with_one_warning(trainer_of, net, tmp_path, ckpt_path):
    """Newer files that are damaged, cut off or empty are named in one warning, and left out."""
    trainer_of(saver(tmp_path / "c")).fit(net(), BATCHES)
    first, second, third, fourth = sorted((tmp_path / "c").iterdir())
    damage(fourth)
    third.write_bytes(third.read_bytes()[:-100])
    (tmp_path / "c" / "empty.ckpt").touch()
    trainer = trainer_of(saver(tmp_path / "c"))
    with pytest.warns(TrainerHooksWarning) as told:
        assert resumed(trainer, net(), ckpt_path) == second.name
    texts = [str(one.message) for one in told]
    assert len(texts) == 1
    for path, reason in (
        (fourth, "checksum"),
        (third, "its end is"),
        ("empty.ckpt", "it is empty"),
    ):
        assert Path(path).name in texts[0]
        assert reason in texts[0]
    assert f"took {str(second)!r}" in texts[0]
    assert first.name not in texts[0]


def test_a_damaged_file_is_refused_by_path(trainer_of, net, tmp_path):
    """A damaged file that is asked for is one error that names it; nothing else is taken."""
    trainer_of(saver(tmp_path / "c")).fit(net(), BATCHES)
    path = tmp_path / "c" / "epoch=0-step=4.ckpt"
    damage(path)
    with pytest.raises(CheckpointError, match="is damaged") as caught:
        trainer_of(saver(tmp_path / "c")).fit(net(), BATCHES, ckpt_path=path)
    assert str(path) in str(caught.value)


def test_only_the_chosen_one_is_verified(trainer_of, net, tmp_path, monkeypatch):
    """Of all candidates only the end is read, however many there are."""
    trainer_of(saver(tmp_path / "c")).fit(net(), BATCHES)
    from trainer_hooks.checkpoint import seal

    checked = []
    check = seal.verify_seal
    monkeypatch.setattr(
        seal, "verify_seal", lambda file, sums: (checked.append(file.name), check(file, sums))
    )
    resumed(trainer_of(saver(tmp_path / "c")), net(), "last")
    assert {Path(name).name for name in checked} == {"epoch=0-step=4.ckpt"}


@pytest.mark.parametrize("ckpt_path", ["last", "auto"])
def test_another_module_is_passed_over(trainer_of, net, Tiny, tmp_path, ckpt_path):
    """A newer checkpoint of another class of module is not taken, and named."""
    trainer_of(saver(tmp_path / "c")).fit(net(), BATCHES)

    class Other(Tiny):
        pass

    trainer_of(saver(tmp_path / "c", filename="other-{step}")).fit(Other(), BATCHES)
    with pytest.warns(TrainerHooksWarning, match=r"saved with a Other.*of its own"):
        found = resumed(trainer_of(saver(tmp_path / "c")), net(), ckpt_path)
    assert found == "epoch=0-step=4.ckpt"


def test_a_module_that_was_changed_is_not_started_anew(trainer_of, net, tmp_path):
    """Where the same class has other weights now, "auto" is an error and no silent new start."""
    trainer_of(saver(tmp_path / "c")).fit(net(), BATCHES)

    class LogsSmallLoss(net):  # "auto" takes checkpoints of a class by its name
        def __init__(self):
            super().__init__()
            self.more = torch.nn.Linear(1, 1)

    with pytest.raises(
        CheckpointError, match=r"do not fit .*Missing key.*: more.weight, more.bias"
    ):
        trainer_of(saver(tmp_path / "c")).fit(LogsSmallLoss(), BATCHES, ckpt_path="auto")
    assert len(list((tmp_path / "c").glob("*.ckpt"))) == 4


def test_a_checkpoint_of_another_tool_can_be_found(trainer_of, net, tmp_path):
    """A file without a seal is placed by its time."""
    trainer_of(saver(tmp_path / "c")).fit(net(), BATCHES)
    path = tmp_path / "c" / "epoch=0-step=2.ckpt"
    torch.save(read_checkpoint(path), path)
    os.utime(path, (time.time() + DAY,) * 2)
    assert resumed(trainer_of(saver(tmp_path / "c")), net(), "last") == path.name


def test_a_folder_that_vanishes_during_a_run(trainer_of, net, tmp_path):
    """A folder that was deleted while the run is on is made again, and nothing new is lost."""

    class Deletes(Callback):
        def on_train_batch_start(self, trainer, module, batch, batch_idx):
            if batch_idx == 2:
                shutil.rmtree(tmp_path / "c")

    trainer_of(saver(tmp_path / "c", save_top_k=1, save_last=True), Deletes()).fit(net(), BATCHES)
    found = sorted(path.name for path in (tmp_path / "c").iterdir())
    assert found == ["epoch=0-step=4.ckpt", "last.ckpt"]
    again = trainer_of(saver(tmp_path / "c", save_top_k=1, save_last=True), epochs=2)
    assert resumed(again, net(), "last") == "last.ckpt"


# --- best ---


@pytest.fixture
def scored(net):
    class LogsScore(net):
        def training_step(self, batch, batch_idx):
            self.log("score", float(abs(batch_idx - 1)))
            return super().training_step(batch, batch_idx)

    return LogsScore


def ranked(folder=None, **options):
    return saver(folder, **{"monitor": "score", "save_top_k": 2, **options})


def test_best_is_found_by_the_books(trainer_of, scored, tmp_path):
    """In a new process "best" is what the newest checkpoint's books say."""
    trainer_of(ranked(tmp_path / "c", save_last=True)).fit(scored(), BATCHES)
    trainer = trainer_of(ranked(tmp_path / "c", save_last=True))
    assert resumed(trainer, scored(), "best") == "epoch=0-step=2.ckpt"


def test_best_in_the_same_process(trainer_of, scored, tmp_path):
    """After a fit it is what the callback itself says."""
    trainer = trainer_of(ranked(tmp_path / "c"))
    trainer.fit(scored(), BATCHES)
    assert resumed(trainer, scored(), "best") == "epoch=0-step=2.ckpt"


def test_best_in_a_folder_that_was_moved(trainer_of, scored, tmp_path):
    """Where the whole folder has moved, the best is beside the file that names it."""
    trainer_of(ranked(tmp_path / "c")).fit(scored(), BATCHES)
    (tmp_path / "c").rename(tmp_path / "d")
    with pytest.warns(TrainerHooksWarning, match="the checkpoint's was"):
        found = resumed(trainer_of(ranked(tmp_path / "d")), scored(), "best")
    assert found == "epoch=0-step=2.ckpt"


@pytest.mark.parametrize("harm", ["damaged", "gone"])
def test_a_best_that_cannot_be_read_is_an_error(trainer_of, scored, tmp_path, harm):
    """No other file takes the place of the best."""
    trainer_of(ranked(tmp_path / "c", save_last=True)).fit(scored(), BATCHES)
    path = tmp_path / "c" / "epoch=0-step=2.ckpt"
    damage(path) if harm == "damaged" else path.unlink()
    words = {"damaged": "is damaged", "gone": "which is not there"}[harm]
    with pytest.raises(CheckpointError, match=words) as caught:
        trainer_of(ranked(tmp_path / "c")).fit(scored(), BATCHES, ckpt_path="best")
    assert path.name in str(caught.value)


def test_best_without_books(trainer_of, net, tmp_path):
    """Where all files are weights alone, nothing says which is best."""
    trainer_of(saver(tmp_path / "c", save_weights_only=True)).fit(net(), BATCHES)
    with pytest.raises(CheckpointNotFoundError, match="says what is best"):
        trainer_of(saver(tmp_path / "c")).fit(net(), BATCHES, ckpt_path="best")


# --- auto ---


def test_the_same_line_starts_and_goes_on(trainer_of, net, tmp_path):
    """A run that is started again with the same line goes on until it is done, and stays so."""
    steps = []

    class Cut(Callback):
        def __init__(self, step):
            self.step = step

        def on_batch_checkpoint(self, trainer, module):
            if trainer.global_step == self.step:
                raise KeyboardInterrupt

    for cut in (2, 3, None, None):
        trainer = trainer_of(saver(tmp_path / "c"), Cut(cut))
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "fit has nothing to do")
                trainer.fit(net(), BATCHES, ckpt_path="auto")
        except KeyboardInterrupt:
            pass
        steps.append((trainer.ckpt_path and Path(trainer.ckpt_path).stem, trainer.global_step))
    assert steps == [
        (None, 2),
        ("epoch=0-step=1", 3),
        ("epoch=0-step=2", 4),
        ("epoch=0-step=4", 4),
    ]


@pytest.mark.parametrize("fn", ["validate", "test", "predict"])
def test_auto_is_for_fit(trainer_of, net, fn):
    """An evaluation has nothing to start anew, and says so."""
    with pytest.raises(OptionError, match=f"ckpt_path='auto' of {fn}"):
        getattr(trainer_of(), fn)(net(), BATCHES, ckpt_path="auto")


def test_a_file_may_be_called_last(trainer_of, net, tmp_path, monkeypatch):
    """A Path is always a path, whatever its name."""
    monkeypatch.chdir(tmp_path)
    trainer = trainer_of(enable_checkpointing=False)
    trainer.fit(net(), BATCHES)
    trainer.save_checkpoint("last")
    again = trainer_of(enable_checkpointing=False, epochs=2)
    assert resumed(again, net(), Path("last")) == "last"


# --- what is removed ---


def test_what_was_found_is_rotated_and_what_was_named_is_not(trainer_of, net, tmp_path):
    """A resume from a file that the callback chose leaves no file behind; a named one stays."""
    one = {"save_top_k": 1}
    trainer_of(saver(tmp_path / "c", **one)).fit(net(), BATCHES)
    trainer_of(saver(tmp_path / "c", **one), epochs=2).fit(net(), BATCHES, ckpt_path="auto")
    assert [path.name for path in (tmp_path / "c").iterdir()] == ["epoch=1-step=8.ckpt"]
    path = tmp_path / "c" / "epoch=1-step=8.ckpt"
    trainer_of(saver(tmp_path / "c", **one), epochs=3).fit(net(), BATCHES, ckpt_path=path)
    assert {path.name for path in (tmp_path / "c").iterdir()} == {path.name, "epoch=2-step=12.ckpt"}


def test_what_a_killed_save_did_not_remove_is_removed_after_the_resume(trainer_of, net, tmp_path):
    """A process killed between a save and the removal of what it replaces leaves no orphan."""

    class Stubborn(ModelCheckpoint):
        def remove_checkpoint(self, trainer, path):
            if trainer.global_step == 4:
                raise KeyboardInterrupt  # stands for the kill
            super().remove_checkpoint(trainer, path)

    class Plain(Stubborn):
        remove_checkpoint = ModelCheckpoint.remove_checkpoint

    Plain.__qualname__ = Stubborn.__qualname__
    Plain.__module__ = Stubborn.__module__
    with pytest.raises(KeyboardInterrupt):
        trainer_of(Stubborn(tmp_path / "c", every_n_train_steps=1)).fit(net(), BATCHES)
    left = sorted(path.name for path in (tmp_path / "c").iterdir())
    assert left == ["epoch=0-step=3.ckpt", "epoch=0-step=4.ckpt"]
    again = trainer_of(Plain(tmp_path / "c", every_n_train_steps=1), epochs=2, max_steps=4)
    again.fit(net(), BATCHES, ckpt_path="auto")
    assert [path.name for path in (tmp_path / "c").iterdir()] == ["epoch=0-step=4.ckpt"]


def test_a_newer_file_of_the_same_name_stays(trainer_of, net, tmp_path):
    """A file that took the name of a replaced one since then is not removed for it."""
    folder = tmp_path / "c"
    options = {"every_n_train_steps": 1, "save_top_k": 1}
    trainer_of(saver(folder, **options)).fit(net(), BATCHES)
    newest = folder / "epoch=0-step=4.ckpt"
    name = folder / "epoch=0-step=3.ckpt"
    assert str(name) in str(read_checkpoint(newest)["callbacks"])
    write_checkpoint({"state_dict": {}}, name)
    assert summarize(str(name)).saved_at > summarize(str(newest)).saved_at
    trainer = trainer_of(saver(folder, **options), max_steps=4, epochs=2)
    trainer.fit(net(), BATCHES, ckpt_path=newest)
    assert name.exists()


@pytest.mark.parametrize(("word", "meant"), [("bset", "best"), ("lst", "last"), ("atuo", "auto")])
def test_a_word_with_a_letter_wrong_is_told(trainer_of, net, word, meant, tmp_path, monkeypatch):
    """A file of that name is taken all the same, and any other name is a path."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointNotFoundError, match=f"no such file. Did you mean '{meant}'"):
        trainer_of().fit(net(), BATCHES, ckpt_path=word)
    with pytest.raises(CheckpointNotFoundError, match="zebra' is not there"):
        trainer_of().fit(net(), BATCHES, ckpt_path="zebra")
    trainer = trainer_of()
    trainer.fit(net(), BATCHES)
    trainer.save_checkpoint(word)
    again = trainer_of()
    with pytest.warns(TrainerHooksWarning, match="nothing to do"):
        again.fit(net(), BATCHES, ckpt_path=word)
    assert again.global_step == trainer.global_step
