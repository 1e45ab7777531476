from __future__ import annotations

from pathlib import Path

import pytest
import torch

from trainer_hooks.callbacks import ModelCheckpoint
from trainer_hooks.errors import CheckpointError, TerminationSignal, TrainerHooksWarning


def files(folder):
    return sorted(path.name for path in Path(folder).iterdir())


def same(state, other):
    return str(state) == str(other)


def best_of(tmp_path, k=2, **options):
    return ModelCheckpoint(tmp_path, "{epoch}", "val_loss", save_top_k=k, **options)


def test_state_can_be_loaded_safely(fake, scores, tmp_path):
    """The state is plain data and tensors, and holds Lightning's keys."""
    saver = best_of(tmp_path, save_last=True)
    trainer = fake(saver)
    trainer.on_validation = scores(2.0, 1.0)
    trainer.fit(2)
    saved = torch.load(saver.last_model_path, weights_only=True)["callbacks"][0]
    # the file of a save says which save that is: a resume finishes it, if the process was killed
    now = {**saver.state_dict(), "files": [str(tmp_path / "epoch=1.ckpt"), saver.last_model_path]}
    assert same(saved, now)
    assert set(saved) >= {
        "monitor",
        "best_model_score",
        "best_model_path",
        "current_score",
        "dirpath",
        "best_k_models",
        "kth_best_model_path",
        "kth_value",
        "last_model_path",
    }


def test_saved_state_counts_the_file_it_is_in(fake, tmp_path):
    """A checkpoint knows itself, so a resume from it goes on as the run that was not cut."""
    saver = ModelCheckpoint(tmp_path, "{epoch}", save_top_k=1, save_last=True)
    fake(saver).fit(1)
    inside = torch.load(tmp_path / "epoch=0.ckpt", weights_only=True)["callbacks"][0]
    files = [str(tmp_path / "epoch=0.ckpt"), str(tmp_path / "last.ckpt")]
    assert same(inside, {**saver.state_dict(), "files": files})


def test_fresh_run_forgets_the_earlier_one(fake, scores, tmp_path):
    """A second training of the same callback starts with empty books and leaves the old files."""
    saver = best_of(tmp_path, k=1, save_last=True)
    for _ in range(2):
        trainer = fake(saver)
        trainer.on_validation = scores(1.0)
        trainer.fit(1)
    assert files(tmp_path) == ["epoch=0-v1.ckpt", "epoch=0.ckpt", "last-v1.ckpt", "last.ckpt"]
    assert list(saver.best_k_models) == [str(tmp_path / "epoch=0-v1.ckpt")]


def test_continued_fit_keeps_the_books(fake, scores, tmp_path):
    """A fit that goes on with the same training still knows its best."""
    saver = best_of(tmp_path, k=1)
    trainer = fake(saver)
    trainer.on_validation = scores(1.0, 2.0)
    trainer.fit(1)
    trainer.fit(2)
    assert files(tmp_path) == ["epoch=0.ckpt"]


def test_the_file_resumed_from_is_never_removed(fake, scores, tmp_path):
    """The checkpoint that a run came from stays, though it is no longer among the best."""
    trainer = fake(best_of(tmp_path, k=1))
    trainer.on_validation = scores(2.0)
    trainer.fit(1)
    trainer = fake(saver := best_of(tmp_path, k=1))
    (tmp_path / "alias.ckpt").symlink_to(tmp_path / "epoch=0.ckpt")
    trainer.resume(tmp_path / "alias.ckpt")
    trainer.progress.complete_epoch()
    trainer.on_validation = scores(1.0)
    trainer.fit(2)
    assert files(tmp_path) == ["alias.ckpt", "epoch=0.ckpt", "epoch=1.ckpt"]
    assert list(saver.best_k_models) == [str(tmp_path / "epoch=1.ckpt")]


def test_files_outside_the_folder_are_never_removed(fake, scores, tmp_path):
    """A state that names a file of another folder cannot make the saver remove it."""
    stranger = tmp_path / "stranger.ckpt"
    stranger.write_text("x")
    mine = tmp_path / "mine"
    sly = str(mine / ".." / "stranger.ckpt")
    saver = best_of(mine, k=1)
    saver.load_state_dict({"dirpath": str(mine), "best_k_models": {sly: torch.tensor(9.0)}})
    trainer = fake(saver)
    trainer.progress.batches_completed = 1
    trainer.on_validation = scores(1.0)
    trainer.fit(1)
    assert stranger.exists()
    assert list(saver.best_k_models) == [str(mine / "epoch=0.ckpt")]


def test_another_folder_takes_over_the_best_path_only(fake, scores, tmp_path):
    """With another dirpath the books start anew, with a warning, and the best path is kept."""
    trainer = fake(old := best_of(tmp_path / "a", save_last=True))
    trainer.on_validation = scores(1.0)
    trainer.fit(1)
    new = best_of(tmp_path / "b")
    with pytest.warns(TrainerHooksWarning, match=r"dirpath .*the checkpoint's was .*a'"):
        new.load_state_dict(old.state_dict())
    assert new.best_model_path == old.best_model_path
    assert (new.best_k_models, new.last_model_path) == ({}, "")


def test_smaller_k_of_this_run_counts(fake, scores, tmp_path):
    """A resume with fewer files to keep lets the worst go at the next save."""
    trainer = fake(old := best_of(tmp_path, k=3))
    trainer.on_validation = scores(3.0, 2.0, 4.0)
    trainer.fit(3)
    new = best_of(tmp_path, k=1)
    new.load_state_dict(old.state_dict())
    trainer.callbacks = (new,)
    trainer.on_validation = scores(1.0)
    trainer.fit(4)
    assert files(tmp_path) == ["epoch=3.ckpt"]
    assert list(new.best_k_models) == [str(tmp_path / "epoch=3.ckpt")]


def test_state_of_lightning_is_taken(tmp_path):
    """A state with Lightning's keys only is restored."""
    saver = best_of(tmp_path)
    saver.load_state_dict(
        {
            "monitor": "val_loss",
            "best_model_score": torch.tensor(1.0),
            "best_model_path": "x.ckpt",
            "current_score": torch.tensor(2.0),
            "dirpath": str(tmp_path),
            "best_k_models": {"x.ckpt": torch.tensor(1.0)},
            "kth_best_model_path": "",
            "kth_value": torch.tensor(torch.inf),
            "last_model_path": "last.ckpt",
        }
    )
    assert saver.best_k_models == {"x.ckpt": torch.tensor(1.0)}
    assert saver.last_model_path == "last.ckpt"


def test_deferred_save_survives_a_cut_before_the_validation(fake, scores, tmp_path):
    """A save that waits for the epoch's validation is done by the run that resumes there."""
    saver = best_of(tmp_path, every_n_train_steps=4)
    trainer = fake(saver)
    trainer.start()
    for index in range(4):
        trainer.run_batch(index)
    assert trainer.saved == []
    trainer.save_checkpoint(tmp_path / "cut.ckpt")
    resumed = fake(saver := best_of(tmp_path, every_n_train_steps=4))
    resumed.resume(tmp_path / "cut.ckpt")
    resumed.start()
    resumed.on_validation = scores(1.0)
    resumed.validate()
    resumed.fire("on_epoch_checkpoint")
    assert resumed.saved == ["epoch=0.ckpt"]


def broken_off(fake, saver, error=None):
    """Break a fit off after its first batch; return the trainer."""
    trainer = fake(saver)
    trainer.start()
    trainer.run_batch(0)
    saver.on_exception(trainer, None, error or RuntimeError())
    return trainer


@pytest.mark.parametrize("error", [RuntimeError(), KeyboardInterrupt(), TerminationSignal(15)])
def test_exception_leaves_a_checkpoint(fake, tmp_path, error):
    """Whatever breaks the fit off, Ctrl-C and SIGTERM too, a file is left that is no best."""
    saver = ModelCheckpoint(tmp_path, save_on_exception=True)
    broken_off(fake, saver, error)
    assert saver.last_exception_path == str(tmp_path / "exception-epoch=0-step=1.ckpt")
    assert files(tmp_path) == ["exception-epoch=0-step=1.ckpt"]
    assert saver.best_model_path == ""


def test_exception_leaves_a_checkpoint_under_the_filename(fake, tmp_path):
    """As in Lightning; a file of that name that is there already stays as it is."""
    for expected in ("own.ckpt", "own-v1.ckpt"):
        saver = ModelCheckpoint(tmp_path, filename="own", save_on_exception=True)
        broken_off(fake, saver)
        assert saver.last_exception_path == str(tmp_path / expected)
    assert files(tmp_path) == ["own-v1.ckpt", "own.ckpt"]


def test_exception_is_not_named_by_a_metric(fake, tmp_path):
    """Its last value is that of another state, and before the first validation there is none."""
    saver = ModelCheckpoint(tmp_path, filename="{epoch}-{val_loss:.2f}", save_on_exception=True)
    broken_off(fake, saver)
    assert files(tmp_path) == ["exception-epoch=0-step=1.ckpt"]


def test_exception_whose_file_cannot_be_written_leaves_no_trace(fake, tmp_path, monkeypatch):
    """A later file of that name, which may be another run's, is not written over."""
    saver = ModelCheckpoint(tmp_path, filename="own", save_on_exception=True)
    trainer = fake(saver)
    trainer.start()
    trainer.run_batch(0)

    def fail(*args):
        raise CheckpointError("full")

    monkeypatch.setattr(trainer, "save_checkpoint", fail)
    with pytest.raises(CheckpointError, match="full"):
        saver.on_exception(trainer, None, RuntimeError())
    assert (saver.last_exception_path, "left_by_error" in saver.state_dict()) == ("", False)


def test_exception_without_the_option_leaves_nothing(fake, tmp_path):
    """Without save_on_exception nothing is saved."""
    saver = ModelCheckpoint(tmp_path)
    trainer = broken_off(fake, saver)
    assert (trainer.saved, saver.last_exception_path) == ([], "")


def test_exception_before_anything_was_trained(fake, tmp_path):
    """An error before the first batch is done, also of a resumed run, saves nothing."""
    saver = ModelCheckpoint(tmp_path, save_on_exception=True)
    trainer = fake(saver)
    saver.on_exception(trainer, None, RuntimeError())
    trainer.start()
    saver.on_exception(trainer, None, RuntimeError())
    trainer.progress.batches_completed = 7
    trainer.start()
    saver.on_exception(trainer, None, RuntimeError())
    assert trainer.saved == []


def test_exception_outside_fit(fake, tmp_path):
    """An error of a later validate or test saves nothing."""
    saver = ModelCheckpoint(tmp_path, save_on_exception=True, every_n_epochs=0)
    trainer = fake(saver)
    trainer.fit(1)
    saver.on_exception(trainer, None, RuntimeError())
    assert trainer.saved == []


def test_exception_file_leaves_the_state_alone(fake, tmp_path):
    """The state inside an exception's file is that of a run that was not broken off."""
    saver = ModelCheckpoint(tmp_path, save_on_exception=True)
    trainer = fake(saver)
    trainer.start()
    trainer.run_batch(0)
    before = str(saver.state_dict())
    saver.on_exception(trainer, None, RuntimeError())
    assert str(saver.state_dict()) == before
