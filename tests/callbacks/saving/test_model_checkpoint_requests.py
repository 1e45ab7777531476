"""ModelCheckpoint.save_now: a file on request beside the others, which nothing removes."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainer_hooks.callbacks import ModelCheckpoint


def names(folder) -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir())


@pytest.fixture
def started(fake, tmp_path):
    """A function that makes a saver and a fake trainer whose fit has begun."""

    def make(**options):
        saver = ModelCheckpoint(tmp_path / "saved", **options)
        trainer = fake(saver)
        trainer.start()
        return saver, trainer, tmp_path / "saved"

    return make


def test_the_file_is_named_by_the_template(started) -> None:
    """With the metrics of that moment, as every other file."""
    saver, trainer, folder = started(filename="{epoch}-{step}-{loss:.1f}")
    trainer.run_batch(0)
    trainer.log(loss=0.25)
    saver.save_now(trainer, None)
    assert names(folder) == ["epoch=0-step=1-loss=0.2.ckpt"]


@pytest.mark.parametrize("options", [{}, {"monitor": "val_loss"}, {"save_top_k": 0}], ids=str)
def test_it_is_neither_ranked_nor_removed(options, started, scores) -> None:
    """The files of later epochs come and go; the requested one stays, and is nobody's best."""
    saver, trainer, folder = started(**options)
    trainer.on_validation = scores(3.0, 2.0, 1.0)
    trainer.run_batch(0)
    before = saver.state_dict()
    saver.save_now(trainer, None)
    assert saver.state_dict() == before
    for _ in range(3):
        trainer.run_epoch()
    kept = [] if options.get("save_top_k") == 0 else ["epoch=2-step=13.ckpt"]
    assert names(folder) == ["epoch=0-step=1.ckpt", *kept]
    assert Path(saver.best_model_path).name == "".join(kept)


@pytest.mark.parametrize("counts", [True, False])
def test_it_takes_no_name_of_another_file(counts, started, scores) -> None:
    """Not even where names that are taken are written over: the best file stays what it is."""
    saver, trainer, folder = started(
        monitor="val_loss", filename="best", enable_version_counter=counts
    )
    trainer.on_validation = scores(1.0)
    trainer.run_epoch()
    best = Path(saver.best_model_path)
    content = best.read_bytes()
    saver.save_now(trainer, None)
    saver.save_now(trainer, None)
    assert names(folder) == ["best-v1.ckpt", "best-v2.ckpt", "best.ckpt"]
    assert best.read_bytes() == content
    assert Path(saver.best_model_path) == best


def test_it_moves_the_last_checkpoint(started) -> None:
    """save_last=True writes last.ckpt with it, and there is one such file."""
    saver, trainer, folder = started(save_last=True, every_n_epochs=2)
    for index in range(2):
        trainer.run_batch(index)
        saver.save_now(trainer, None)
    assert names(folder) == ["epoch=0-step=1.ckpt", "epoch=0-step=2.ckpt", "last.ckpt"]
    assert saver.last_model_path == str(folder / "last.ckpt")
    assert trainer.saved[-1] == "last.ckpt"


def test_it_moves_the_link_to_the_last(started) -> None:
    """save_last="link" makes last.ckpt a link to it, until a newer file is saved."""
    saver, trainer, folder = started(save_last="link")
    trainer.run_epoch()
    trainer.run_batch(0)
    saver.save_now(trainer, None)
    assert (folder / "last.ckpt").resolve().name == "epoch=1-step=5.ckpt"
    trainer.run_epoch()
    assert (folder / "last.ckpt").resolve().name == "epoch=1-step=9.ckpt"
    assert names(folder) == ["epoch=1-step=5.ckpt", "epoch=1-step=9.ckpt", "last.ckpt"]


def test_the_schedule_goes_on_as_it_was(started) -> None:
    """A save every three steps stays at every third, whatever was asked for in between."""
    saver, trainer, _ = started(every_n_train_steps=3, save_top_k=-1, filename="{step}")
    for index in range(4):
        trainer.run_batch(index)
        if index == 1:
            saver.save_now(trainer, None)
    assert trainer.saved == ["step=2.ckpt", "step=3.ckpt"]


def test_nothing_in_a_dry_run(fake, tmp_path) -> None:
    """fast_dev_run writes no file, whoever asks."""
    saver = ModelCheckpoint(tmp_path / "saved")
    trainer = fake(saver, fast_dev_run=1)
    trainer.start()
    trainer.run_batch(0)
    saver.save_now(trainer, None)
    assert trainer.saved == []


def test_a_save_that_fails_leaves_the_books(started) -> None:
    """What cannot be written is not the last checkpoint."""
    saver, trainer, _ = started(save_last=True)
    trainer.run_batch(0)
    trainer.fail_on_save = OSError("disk full")
    with pytest.raises(OSError, match="disk full"):
        saver.save_now(trainer, None)
    assert saver.last_model_path == ""
