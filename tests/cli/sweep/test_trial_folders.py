"""The folders of a config that each trial of a sweep has to itself, and those that all share."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("jsonargparse")

from trainer_hooks.callbacks import ModelCheckpoint
from trainer_hooks.cli.sweep.trial_folders import (
    check_trial_folders,
    place_in_trial_folder,
)
from trainer_hooks.errors import OptionError


class Outer:
    class Saver(ModelCheckpoint):
        """A class inside another one."""


def options(class_path: str, **arguments: str) -> dict:
    return {"logger": [{"class_path": class_path, "init_args": arguments}]}


@pytest.mark.parametrize(
    "name",
    ["loggers.MLflowLogger", "loggers.WandbLogger", "compat.lightning.pytorch.loggers.WandbLogger"],
)
@pytest.mark.parametrize("folder", ["/shared/runs", "runs"])
def test_loggers_whose_runs_have_ids_share_a_folder(name: str, folder: str) -> None:
    """The runs of all trials lie in one place, so that they can be compared."""
    trainer = options(f"trainer_hooks.{name}", save_dir=folder)
    check_trial_folders(trainer)
    place_in_trial_folder(trainer, Path("sweep/trial_0"))
    assert trainer == options(f"trainer_hooks.{name}", save_dir=folder)


@pytest.mark.parametrize(
    ("class_path", "argument", "harm"),
    [
        ("trainer_hooks.loggers.TensorBoardLogger", "save_dir", "mix their logs"),
        ("trainer_hooks.profilers.SimpleProfiler", "dirpath", "mix their logs"),
        (
            "trainer_hooks.callbacks.WSDCheckpointCallback",
            "save_dir",
            "resume from each other's check",
        ),
        (f"{__name__}.Outer.Saver", "dirpath", "resume from each other's checkpoints"),
    ],
)
def test_a_folder_of_files_is_each_trials_own(class_path: str, argument: str, harm: str) -> None:
    """A relative one is placed in the folder of the trial, and any other refused."""
    trainer = options(class_path, **{argument: "/all"})
    with pytest.raises(OptionError, match=f"all trials would write there, and {harm}"):
        check_trial_folders(trainer)
    trainer = options(class_path, **{argument: "own"})
    check_trial_folders(trainer)
    place_in_trial_folder(trainer, Path("sweep/trial_0"))
    assert trainer == options(class_path, **{argument: str(Path("sweep/trial_0/own"))})
