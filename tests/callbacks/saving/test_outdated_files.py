"""A saved file is never older than necessary: fresh scores, and a current last checkpoint."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

from trainer_hooks import Callback, Module, Trainer
from trainer_hooks.callbacks import EarlyStopping, ModelCheckpoint
from trainer_hooks.checkpoint.paths import file_name, files_in
from trainer_hooks.errors import UsageError


class Line(Module):
    """A line fitted to points; each validation logs the number of steps done when it ran."""

    def __init__(self, *, is_manual=False):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(2, 1)
        self.automatic_optimization = not is_manual

    def training_step(self, batch, batch_idx):
        loss = (self.layer(batch) - 1).square().mean()
        if self.automatic_optimization:
            return loss
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(loss)
        optimizer.step()
        return None

    def validation_step(self, batch, batch_idx):
        self.log("validated_at", float(self.global_step))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def points(count=8):
    generator = torch.Generator().manual_seed(1)
    return DataLoader(torch.randn(count, 2, generator=generator), batch_size=2)


def fit(tmp_path, *callbacks, module=None, epochs=2, ckpt_path=None, **options):
    trainer = Trainer(
        default_root_dir=tmp_path,
        accelerator="cpu",
        plugins=False,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=list(callbacks),
        max_epochs=epochs,
        **options,
    )
    trainer.fit(module or Line(), points(), points(2), ckpt_path=ckpt_path)
    return trainer


@pytest.mark.parametrize("interval", [1, 2, 0.5])
@pytest.mark.parametrize("is_manual", [False, True])
def test_a_step_save_is_ranked_by_the_validation_of_that_step(tmp_path, interval, is_manual):
    """Where a step is validated after and saved after, the score is of that step and no older."""
    saver = ModelCheckpoint(
        monitor="validated_at", save_top_k=-1, every_n_train_steps=2, filename="{step}"
    )
    fit(tmp_path, saver, module=Line(is_manual=is_manual), val_check_interval=interval)
    scores = {Path(path).stem: score.item() for path, score in saver.best_k_models.items()}
    assert scores == {"step=2": 2.0, "step=4": 4.0, "step=6": 6.0, "step=8": 8.0}


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ({"every_n_train_steps": 3}, [3, 6]),
        ({"train_time_interval": timedelta(microseconds=1)}, [1, 2, 3, 4, 5, 6, 7, 8]),
        ({"every_n_epochs": 2}, [8]),
        ({}, [4, 8]),
    ],
    ids=["steps", "time", "epochs", "default"],
)
def test_manual_optimization_is_saved_like_any_other(tmp_path, options, steps):
    """Each trigger works where the module steps by itself, and the weights are those of then."""

    class Weights(Callback):
        def __init__(self):
            self.of_step = {}

        def on_train_batch_end(self, trainer, module, *args):
            self.of_step[trainer.global_step] = module.layer.weight.detach().clone()

    saver = ModelCheckpoint(save_top_k=-1, filename="{step}", save_last=True, **options)
    fit(tmp_path, saver, weights := Weights(), module=Line(is_manual=True))
    folder = tmp_path / "checkpoints"
    saved = {path.stem: torch.load(path, weights_only=True) for path in folder.iterdir()}
    last = saved.pop("last")
    assert sorted(saved) == [f"step={step}" for step in steps]
    for step in steps:
        assert torch.equal(
            saved[f"step={step}"]["state_dict"]["layer.weight"], weights.of_step[step]
        )
    # epochs set off the last one each time, steps and time only as often as they are due
    assert last["global_step"] == (8 if "every_n_train_steps" not in options else 6)


class LastSteps(Callback):
    """Notes after each epoch how many steps the last checkpoint has."""

    def __init__(self, folder):
        self.folder = folder
        self.steps = []

    def on_train_epoch_start(self, trainer, module):
        last = self.folder / "last.ckpt"
        if last.exists():
            self.steps.append(torch.load(last, weights_only=True)["global_step"])


@pytest.mark.parametrize("every", [0, 2, 3, 100])
@pytest.mark.parametrize(
    "options", [{}, {"val_check_interval": 0.5}, {"save_on_train_epoch_end": True}], ids=str
)
def test_the_last_checkpoint_keeps_up(tmp_path, every, options):
    """`every_n_epochs` is for the best; `save_last` is saved after every epoch whatever it is."""
    options = dict(options)
    by_trainer = {name: options.pop(name) for name in ("val_check_interval",) if name in options}
    saver = ModelCheckpoint(
        save_last=True, every_n_epochs=every, save_top_k=-1, filename="{epoch}", **options
    )
    seen = LastSteps(tmp_path / "checkpoints")
    fit(tmp_path, saver, seen, epochs=4, **by_trainer)
    assert seen.steps == [4, 8, 12]
    last = torch.load(saver.last_model_path, weights_only=True)
    assert last["global_step"] == 16
    kept = {path.stem for path in (tmp_path / "checkpoints").iterdir()} - {"last"}
    due = [epoch for epoch in range(4) if every and (epoch + 1) % every == 0]
    assert {name.partition("-v")[0] for name in kept} == {f"epoch={epoch}" for epoch in due}


def test_a_link_to_the_best_stays_until_the_next_best(tmp_path):
    """`save_last="link"` writes a file of its own only as long as there is none to link to."""
    saver = ModelCheckpoint(save_last="link", every_n_epochs=2, filename="{epoch}")
    fit(tmp_path, saver, epochs=3)
    folder = tmp_path / "checkpoints"
    assert (folder / "last.ckpt").readlink().name == "epoch=1.ckpt"
    fit(tmp_path / "one", first := ModelCheckpoint(save_last="link", every_n_epochs=2), epochs=1)
    assert not Path(first.last_model_path).is_symlink()


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_resumed_run_has_the_same_last_checkpoint(tmp_path, cut):
    """Cut between two saves of the best and resumed from the last one, it ends as the uncut one."""
    ends = []
    for name, stages in (("whole", (4,)), ("parts", (cut, 4))):
        folder, path = tmp_path / name, None
        for epochs in stages:
            saver = ModelCheckpoint(
                folder, "{epoch}", "validated_at", mode="max", save_last=True, every_n_epochs=2
            )
            fit(tmp_path, saver, epochs=epochs, ckpt_path=path)
            path = saver.last_model_path
        state = str(saver.state_dict()).replace(str(folder), "")
        ends.append((sorted(item.name for item in folder.iterdir()), state))
    assert ends[0] == ends[1]


def test_two_early_stoppings_on_one_monitor_are_resumed_apart(tmp_path):
    """Each has its own state under its own name, and its decision survives the resume."""

    def stoppers(patience=2):
        return (
            EarlyStopping("validated_at", patience=patience, name="patient"),
            EarlyStopping("validated_at", stopping_threshold=-1.0, name="bounded", patience=50),
        )

    saver = ModelCheckpoint(tmp_path / "c", save_last=True)
    first = fit(tmp_path, saver, *stoppers(), epochs=9)
    assert (first.current_epoch, first.stop_reason[:13]) == (3, "EarlyStopping")
    cut = shutil.copy(saver.last_model_path, tmp_path / "cut.ckpt")
    for patience, epochs in ((2, 3), (3, 4)):
        patient, bounded = stoppers(patience)
        saver = ModelCheckpoint(tmp_path / "c", save_last=True)
        again = fit(tmp_path, saver, patient, bounded, epochs=9, ckpt_path=cut)
        assert again.current_epoch == epochs
        assert patient.patience == patience
        assert bounded.patience == 50
        assert patient.wait_count == bounded.wait_count == epochs - 1


def test_what_is_left_of_lightnings_interface(tmp_path):
    """The helpers that code for Lightning calls are there: YAML, the rank of a score, a trigger."""
    saver = ModelCheckpoint(monitor="validated_at", filename="{epoch}", save_top_k=2, mode="max")
    with pytest.raises(UsageError, match="before a run resolved dirpath"):
        saver.to_yaml()
    trainer = fit(tmp_path, saver)
    saver.to_yaml()
    lines = (tmp_path / "checkpoints" / "best_k_models.yaml").read_text().splitlines()
    folder = tmp_path / "checkpoints"
    assert lines == [f'"{folder}/epoch=0.ckpt": 4.0', f'"{folder}/epoch=1.ckpt": 8.0']
    assert saver.check_monitor_top_k(trainer, torch.tensor(5.0))
    assert not saver.check_monitor_top_k(trainer, torch.tensor(3.0))
    assert not saver.check_monitor_top_k(trainer)
    assert saver.file_exists(saver.best_model_path, trainer)
    assert not saver.file_exists(f"{saver.best_model_path}.gone", trainer)
    assert saver.every_n_epochs == 1
    with pytest.raises(UsageError, match="must be a local file"):
        saver.to_yaml("s3://bucket/x.yaml")


@pytest.mark.parametrize("folder", ["mine", "memory://two-savers"])
def test_a_resume_by_path_from_the_file_of_the_first_saver(tmp_path, folder):
    """The second, whose turn comes again, writes over its file of then, and deletes it later."""
    folder = folder if "://" in folder else str(tmp_path / folder)

    def savers():
        return [
            ModelCheckpoint(folder, filename="each-{epoch}", save_top_k=-1, save_last=True),
            ModelCheckpoint(folder, filename="top-{epoch}", monitor="validated_at", mode="max"),
        ]

    def train(epochs, ckpt_path=None):
        both = savers()
        module = Line()
        quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
        trainer = Trainer(default_root_dir=tmp_path, accelerator="cpu", plugins=False,
                          callbacks=both, max_epochs=epochs, **quiet)  # fmt: skip
        trainer.fit(module, points(), points(4), ckpt_path=ckpt_path)
        return both

    train(3)
    _, top = train(5, f"{folder}/last.ckpt")
    found = sorted(file_name(path) for path in files_in(folder, ".ckpt"))
    assert found == sorted(["last.ckpt", *(f"each-epoch={n}.ckpt" for n in range(5)),
                            "top-epoch=4.ckpt"])  # fmt: skip
    assert file_name(top.best_model_path) == "top-epoch=4.ckpt"
