from __future__ import annotations

import logging
import math
from pathlib import Path

import pytest
import torch

from trainer_hooks import Module
from trainer_hooks.callbacks import ModelCheckpoint
from trainer_hooks.errors import (
    CheckpointError,
    MetricError,
    TrainerHooksAdvice,
    TrainerHooksWarning,
)


def files(folder):
    return sorted(path.name for path in Path(folder).iterdir())


def visible(folder):
    return [name for name in files(folder) if not name.startswith(".")]


def run(fake, scores, saver, values, **options):
    trainer = fake(saver, **options)
    trainer.on_validation = scores(*values)
    trainer.fit(len(values))
    return trainer


def test_monitor_never_logged(fake, tmp_path):
    """A monitor that validation did not log is an error with its name, the rule and what was."""
    trainer = fake(ModelCheckpoint(tmp_path, monitor="val_los"))
    trainer.on_validation = lambda t: t.log(val_loss=1, acc=2)
    with pytest.raises(
        MetricError,
        match=r"monitor 'val_los' of ModelCheckpoint: .*'acc', 'val_loss'\. Did you mean",
    ):
        trainer.fit(1)
    assert not trainer.saved


def test_monitor_without_validation_is_an_error_at_once(fake, tmp_path):
    """Where nothing validates, no later validation can log the monitor."""
    trainer = fake(ModelCheckpoint(tmp_path, monitor="x"), val_batches=0)
    with pytest.raises(MetricError, match="nothing was logged yet"):
        trainer.fit(1)


def test_monitor_with_several_numbers(fake, tmp_path):
    """A monitored value must be a single number."""
    trainer = fake(ModelCheckpoint(tmp_path, monitor="x"))
    trainer.callback_metrics["x"] = torch.ones(2)
    with pytest.raises(MetricError, match="must be a single real number"):
        trainer.fit(1)


def test_failed_save_leaves_the_books_and_the_old_file(fake, scores, tmp_path):
    """If the new file cannot be written, the old one stays and remains the best."""
    saver = ModelCheckpoint(tmp_path, monitor="val_loss")
    trainer = run(fake, scores, saver, [2.0])
    best = saver.best_model_path
    trainer.on_validation = scores(1.0)
    trainer.fail_on_save = CheckpointError("disk full")
    with pytest.raises(CheckpointError, match="disk full"):
        trainer.fit(2)
    assert saver.best_model_path == best
    assert saver.best_k_models == {best: torch.tensor(2.0)}
    assert files(tmp_path) == ["epoch=0-step=4.ckpt"]


def test_unremovable_file_is_a_warning(fake, tmp_path, monkeypatch):
    """A file that cannot be removed does not end the run."""

    def unlink(self, missing_ok=False):
        raise PermissionError("not yours")

    trainer = fake(ModelCheckpoint(tmp_path))
    trainer.fit(1)
    monkeypatch.setattr(Path, "unlink", unlink)
    with pytest.warns(TrainerHooksWarning, match=r"cannot be removed \(not yours\)"):
        trainer.fit(2)


def test_without_monitor_the_newest_is_kept(fake, tmp_path):
    """By default each epoch replaces the file of the one before."""
    saver = ModelCheckpoint(tmp_path)
    trainer = fake(saver)
    trainer.fit(3)
    assert trainer.saved == [f"epoch={e}-step={4 * (e + 1)}.ckpt" for e in range(3)]
    assert files(tmp_path) == ["epoch=2-step=12.ckpt"]
    assert saver.best_model_path == str(tmp_path / "epoch=2-step=12.ckpt")
    assert saver.best_model_score is None


def test_minus_one_keeps_all_and_zero_none(fake, tmp_path):
    """save_top_k=-1 keeps every file; 0 writes none."""
    fake(ModelCheckpoint(tmp_path, save_top_k=-1)).fit(3)
    assert len(files(tmp_path)) == 3
    nothing = fake(ModelCheckpoint(tmp_path, save_top_k=0))
    nothing.fit(2)
    assert nothing.saved == []


@pytest.mark.parametrize(
    ("mode", "kept", "best", "kth"), [("min", [1, 3], 0.5, 0.7), ("max", [0, 2], 0.9, 0.8)]
)
def test_the_best_k_are_kept(fake, scores, tmp_path, mode, kept, best, kth):
    """Of four scores the best two keep their files, and the attributes say which."""
    saver = ModelCheckpoint(tmp_path, "{epoch}", "val_loss", save_top_k=2, mode=mode)
    run(fake, scores, saver, [0.9, 0.5, 0.8, 0.7])
    assert files(tmp_path) == [f"epoch={epoch}.ckpt" for epoch in kept]
    assert saver.best_model_score.item() == pytest.approx(best)
    assert saver.kth_value.item() == pytest.approx(kth)
    assert saver.best_k_models[saver.best_model_path] == saver.best_model_score
    assert saver.best_k_models[saver.kth_best_model_path] == saver.kth_value
    assert saver.current_score.item() == pytest.approx(0.7)


def test_a_tie_keeps_the_older(fake, scores, tmp_path):
    """A score that is equal to the worst of the best is not saved."""
    trainer = run(fake, scores, ModelCheckpoint(tmp_path, "{epoch}", "val_loss"), [1.0, 1.0])
    assert trainer.saved == ["epoch=0.ckpt"]


@pytest.mark.parametrize("mode", ["min", "max"])
def test_nan_is_never_the_best(fake, scores, tmp_path, mode):
    """NaN takes a free place only, is never named the best, and gives way to any number."""
    saver = ModelCheckpoint(tmp_path, "{epoch}", "val_loss", save_top_k=2, mode=mode)
    run(fake, scores, saver, [math.nan, math.inf, 1.0, math.nan])
    assert files(tmp_path) == ["epoch=1.ckpt", "epoch=2.ckpt"]
    assert saver.best_model_score.item() == (1.0 if mode == "min" else math.inf)
    assert math.isnan(saver.current_score.item())


def test_only_nan_has_no_best(fake, scores, tmp_path):
    """A run that diverged from the start has a file, and no best."""
    saver = ModelCheckpoint(tmp_path, "{epoch}", "val_loss")
    run(fake, scores, saver, [math.nan, math.nan])
    assert files(tmp_path) == ["epoch=0.ckpt"]
    assert saver.best_model_path == ""


def test_counters_can_be_monitored(fake, tmp_path):
    """`step` is a monitor that needs no logging: it keeps the newest."""
    fake(ModelCheckpoint(tmp_path, "{step}", "step", save_top_k=2, mode="max")).fit(3)
    assert files(tmp_path) == ["step=12.ckpt", "step=8.ckpt"]


def test_new_file_is_durable_before_the_old_goes(fake, tmp_path):
    """When a file is written, the one it replaces is still there; then it goes."""
    saver = ModelCheckpoint(tmp_path, "{epoch}")
    trainer = fake(saver)
    seen = []
    save = trainer.save_checkpoint
    trainer.save_checkpoint = lambda path, weights_only: (
        seen.append(visible(tmp_path)),
        save(path),
    )
    trainer.fit(2)
    assert seen == [[], ["epoch=0.ckpt"]]
    assert files(tmp_path) == ["epoch=1.ckpt"]


def test_nothing_is_removed_until_a_background_save_is_durable(fake, tmp_path):
    """A save that returns early removes nothing; `on_checkpoint_saved` does."""
    saver = ModelCheckpoint(tmp_path, "{epoch}")
    trainer = fake(saver)
    trainer.fit(1)
    save, pending = trainer.save_checkpoint, []
    trainer.save_checkpoint = lambda path, weights_only: pending.append(path)
    trainer.fit(2)
    assert visible(tmp_path) == ["epoch=0.ckpt"]
    save(pending[0])
    assert files(tmp_path) == ["epoch=1.ckpt"]


def test_name_that_is_taken_gets_a_version(fake, tmp_path):
    """A stranger's file is not written over: the new one is `-v1`, then `-v2`."""
    (tmp_path / "best.ckpt").write_text("a stranger's")
    trainer = fake(ModelCheckpoint(tmp_path, "best", save_top_k=-1))
    trainer.fit(2)
    assert trainer.saved == ["best-v1.ckpt", "best-v2.ckpt"]
    assert (tmp_path / "best.ckpt").read_text() == "a stranger's"


def test_own_name_is_used_again(fake, scores, tmp_path):
    """With one file to keep and a fixed name, the name stays."""
    saver = ModelCheckpoint(tmp_path, "best", "val_loss")
    trainer = run(fake, scores, saver, [2.0, 1.0])
    assert trainer.saved == ["best.ckpt", "best.ckpt"]
    assert files(tmp_path) == ["best.ckpt"]
    assert list(saver.best_k_models) == [str(tmp_path / "best.ckpt")]


def test_without_version_counter_names_are_written_over(fake, tmp_path):
    """enable_version_counter=False keeps to the name."""
    (tmp_path / "best.ckpt").write_text("old")
    saver = ModelCheckpoint(tmp_path, "best", save_top_k=-1, enable_version_counter=False)
    trainer = fake(saver)
    trainer.fit(2)
    assert trainer.saved == ["best.ckpt", "best.ckpt"]
    assert files(tmp_path) == ["best.ckpt"]


def test_save_last_copies(fake, scores, tmp_path):
    """save_last=True writes last.ckpt at each save, also when the score is not among the best."""
    saver = ModelCheckpoint(tmp_path, "{epoch}", "val_loss", save_last=True)
    trainer = run(fake, scores, saver, [1.0, 2.0])
    assert trainer.saved == ["epoch=0.ckpt", "last.ckpt", "last.ckpt"]
    assert saver.last_model_path == str(tmp_path / "last.ckpt")
    last = torch.load(tmp_path / "last.ckpt", weights_only=True)
    assert last["progress"]["steps_completed"] == 8


def test_last_with_a_template_replaces_its_predecessor(fake, tmp_path):
    """A name for the last file with a counter in it does not pile up files."""
    saver = ModelCheckpoint(tmp_path, save_top_k=0, save_last=True)
    saver.CHECKPOINT_NAME_LAST = "{epoch}-last"
    fake(saver).fit(3)
    assert files(tmp_path) == ["epoch=2-last.ckpt"]


def test_save_last_link(fake, scores, tmp_path):
    """save_last="link" points to the newest of the best and writes nothing twice."""
    saver = ModelCheckpoint(tmp_path, "{epoch}", "val_loss", save_last="link")
    trainer = run(fake, scores, saver, [2.0, 1.0, 3.0])
    assert trainer.saved == ["epoch=0.ckpt", "epoch=1.ckpt"]
    assert (tmp_path / "last.ckpt").is_symlink()
    assert (tmp_path / "last.ckpt").resolve() == tmp_path / "epoch=1.ckpt"
    assert Path(tmp_path / "last.ckpt").readlink() == Path("epoch=1.ckpt")
    assert files(tmp_path) == ["epoch=1.ckpt", "last.ckpt"]


def test_save_last_link_without_best(fake, tmp_path):
    """With no best to link to, save_last="link" writes the file each time."""
    trainer = fake(ModelCheckpoint(tmp_path, save_top_k=0, save_last="link"))
    trainer.fit(2)
    assert trainer.saved == ["last.ckpt", "last.ckpt"]
    assert not (tmp_path / "last.ckpt").is_symlink()


def test_save_last_link_is_a_copy_where_links_are_forbidden(fake, tmp_path, monkeypatch):
    """Without the right to make links, the last file is a copy."""

    def symlink_to(self, target):
        raise OSError("not permitted")

    monkeypatch.setattr(Path, "symlink_to", symlink_to)
    fake(ModelCheckpoint(tmp_path, "{epoch}", save_last="link")).fit(1)
    assert (tmp_path / "last.ckpt").read_bytes() == (tmp_path / "epoch=0.ckpt").read_bytes()
    assert not (tmp_path / "last.ckpt").is_symlink()


def test_metric_missing_in_the_filename_is_told_once(fake, tmp_path):
    """A filename with a metric that was not logged shows nan, with one warning."""
    trainer = fake(ModelCheckpoint(tmp_path, "{epoch}-{acc:.2f}", save_top_k=-1))
    with pytest.warns(TrainerHooksWarning, match="metrics acc in filename") as told:
        trainer.fit(2)
    assert len(told) == 1
    assert trainer.saved == ["epoch=0-acc=nan.ckpt", "epoch=1-acc=nan.ckpt"]


def test_verbose_tells_each_decision(fake, scores, tmp_path, caplog):
    """verbose=True logs at INFO what was saved and what was not; otherwise it is silent."""
    caplog.set_level(logging.INFO, logger="trainer_hooks")
    run(fake, scores, ModelCheckpoint(tmp_path, "{epoch}", "val_loss"), [1.0, 2.0])
    assert not caplog.messages
    run(fake, scores, ModelCheckpoint(tmp_path, "{epoch}", "val_loss", True), [1.0, 2.0])
    assert [("is among the best; saving" in m, "not among" in m) for m in caplog.messages] == [
        (True, False),
        (False, True),
    ]


def test_other_ranks_touch_no_files(fake, tmp_path):
    """Only the first process removes files; all keep the same books."""
    saver = ModelCheckpoint(tmp_path, "{epoch}")
    trainer = fake(saver)
    trainer.is_global_zero = False
    trainer.fit(2)
    assert files(tmp_path) == ["epoch=0.ckpt", "epoch=1.ckpt"]
    assert saver.best_model_path.endswith("epoch=1.ckpt")


def test_weights_only_is_passed_on(fake, tmp_path):
    """save_weights_only reaches the trainer."""
    trainer = fake(ModelCheckpoint(tmp_path, save_weights_only=True))
    given = []
    trainer.save_checkpoint = lambda path, weights_only: given.append(weights_only)
    trainer.fit(1)
    assert given == [True]


def test_dangling_link_takes_its_name(fake, tmp_path):
    """A link to a file that is gone is not written over."""
    (tmp_path / "best.ckpt").symlink_to("gone.ckpt")
    trainer = fake(ModelCheckpoint(tmp_path, "best"))
    trainer.fit(1)
    assert trainer.saved == ["best-v1.ckpt"]


@pytest.mark.parametrize("name", ["val_score", "score"])
def test_a_fit_whose_validation_is_left_out_trains_through(quiet_trainer, tmp_path, name):
    """The saver says once that it ranks nothing; `save_last` and saves on request go on."""

    class Validated(Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def training_step(self, batch, batch_idx):
            return self.layer(batch).square().mean()

        def validation_step(self, batch, batch_idx):
            self.log(name, batch.mean())

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    saver = ModelCheckpoint(tmp_path, monitor=name, save_last=True)
    options = {"limit_val_batches": 0, "enable_checkpointing": True}
    trainer = quiet_trainer(max_epochs=3, callbacks=[saver], **options)
    with pytest.warns((TrainerHooksWarning, TrainerHooksAdvice), match=name) as told:
        trainer.fit(Validated(), [torch.ones(2, 2)] * 3, [torch.ones(2, 2)])
    assert (len(told), trainer.global_step, visible(tmp_path)) == (1, 9, ["last.ckpt"])
    assert not saver.best_model_path
