"""What every test stands on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from trainer_hooks import Trainer

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _without_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep callbacks of packages that happen to be installed here out of the tests' trainers."""
    monkeypatch.setenv("TRAINER_HOOKS_DISABLE_PLUGINS", "1")


@pytest.fixture
def bare(tmp_path: Path):
    """A function that makes a trainer of one epoch on the CPU, without anything on by default."""

    def make(*callbacks, **options) -> Trainer:
        defaults = {
            "accelerator": "cpu",
            "max_epochs": 1,
            "num_sanity_val_steps": 0,
            "logger": False,
            "enable_checkpointing": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "default_root_dir": tmp_path,
        }
        return Trainer(callbacks=callbacks, **{**defaults, **options})

    return make
