"""The checkpoints of a report: each once, and "best" only where a metric ranks them."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainer_hooks import Trainer
from trainer_hooks.callbacks import ModelCheckpoint
from trainer_hooks.cli.report.artifacts import read_checkpoints
from trainer_hooks.cli.report.logged_run import read_run
from trainer_hooks.testing import TinyModule


@pytest.fixture
def train(tmp_path, monkeypatch):
    """Train with a saver in the folder `runs`, seen from the folder `scripts` beside it."""
    (tmp_path / "scripts").mkdir()
    monkeypatch.chdir(tmp_path / "scripts")

    def train(saver: ModelCheckpoint) -> Path:
        trainer = Trainer(
            max_epochs=2, default_root_dir="../runs", callbacks=[saver], accelerator="cpu",
            enable_progress_bar=False, enable_model_summary=False, plugins=False,
        )  # fmt: skip
        trainer.fit(TinyModule())
        return Path(trainer.log_dir)

    return train


def test_a_checkpoint_behind_two_dots_is_listed_once(train) -> None:
    """The journal and the folder name one file in two ways."""
    folder = train(ModelCheckpoint(monitor="val_loss", save_top_k=-1))
    for shown in (folder, Path("..", "scripts", folder), folder.resolve()):
        files, _ = read_checkpoints(read_run(shown, "run", 100))
        assert sorted(file.path.name for file in files) == [
            "epoch=0-step=3.ckpt", "epoch=1-step=6.ckpt",
        ]  # fmt: skip
        assert [mark for file in files for mark in file.marks] == ["best"]


def test_a_saver_without_a_monitor_has_no_best(train) -> None:
    """The newest checkpoint is not called the best."""
    files, _ = read_checkpoints(read_run(train(ModelCheckpoint()), "run", 100))
    assert [file.marks for file in files] == [[]]
