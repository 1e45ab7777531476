"""Trainers that write nothing but into one folder."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from new_processes import forget_trainings

from trainer_hooks import Trainer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

QUIET_OPTIONS: Mapping[str, Any] = MappingProxyType({
    "accelerator": "cpu", "logger": False, "plugins": False, "enable_checkpointing": False,
    "enable_progress_bar": False, "enable_model_summary": False,
})  # fmt: skip
"""Options of a Trainer that runs on the CPU, writes no file, and prints nothing."""


def quiet_trainers(root: Path, *, epochs: int) -> Callable[..., Trainer]:
    """Return a function that makes a trainer as a new process would, all of its files in a root.

    Args:
        root: the folder.
        epochs: the default of the function's argument `epochs`.
    """

    def make(*callbacks, epochs=epochs, **options) -> Trainer:
        forget_trainings()
        quiet = {
            "accelerator": "cpu",
            "logger": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "default_root_dir": root,
        }
        return Trainer(callbacks=callbacks, max_epochs=epochs, **{**quiet, **options})

    return make
