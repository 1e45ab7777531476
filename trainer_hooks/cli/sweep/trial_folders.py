"""The folders that a config names for checkpoints and logs: each trial has its own.

A relative one lies in the folder of the trial. All trials would share any other. The loggers whose
runs have ids keep their folder: the trials are runs of their own there, which can be compared.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer_hooks.checkpoint.paths import is_remote
from trainer_hooks.cli.run.arguments import import_class
from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator, MutableMapping

_FOLDER_ARGUMENTS = ("dirpath", "save_dir", "folder")
"""The names under which callbacks, loggers and profilers take the folder that they write to."""

_LOGGERS_WITH_IDS = frozenset(("MLflowLogger", "MLFlowLogger", "WandbLogger"))
"""The classes, also of Lightning, whose runs have ids, so that many can share a folder."""

_SAVER = "Checkpoint"
"""The base class of callbacks that write checkpoints, also in Lightning."""


def check_trial_folders(options: Any) -> None:
    """Check that each folder of the Trainer's options can lie in that of a trial.

    Args:
        options: the parsed options of the Trainer.

    Raises:
        OptionError: one is absolute, an address, or leads out of the trial's folder.
    """
    for class_path, arguments, name in _folder_arguments(options):
        folder = arguments[name]
        is_outside = Path(os.path.normpath(folder)).parts[:1] == (os.pardir,)
        if is_remote(folder) or Path(folder).expanduser().is_absolute() or is_outside:
            is_saver = _SAVER in _class_names(class_path)
            harm = "resume from each other's checkpoints" if is_saver else "mix their logs"
            raise OptionError(
                f"{name} {folder!r} of {class_path.rpartition('.')[2]} in the config: all trials "
                f"would write there, and {harm}. Give a relative path, which lies in the folder of "
                "each trial, or leave it out where it has a default."
            )


def place_in_trial_folder(options: Any, trial_folder: Path) -> None:
    """Place each relative folder of the Trainer's options into the folder of a trial."""
    for _, arguments, name in _folder_arguments(options):
        arguments[name] = str(trial_folder / arguments[name])


def _folder_arguments(value: Any) -> Iterator[tuple[str, MutableMapping[str, Any], str]]:
    """Yield class path, arguments and name of each argument below a value that is a folder."""
    if isinstance(value, list):
        for item in value:
            yield from _folder_arguments(item)
    # the parser's Namespace keeps its values as attributes, and lists them under dotted names
    value = vars(value) if hasattr(value, "as_dict") else value
    if not isinstance(value, dict):
        return
    arguments = value.get("init_args")
    arguments = vars(arguments) if hasattr(arguments, "as_dict") else arguments
    if "class_path" in value and isinstance(arguments, dict):
        class_path = str(value["class_path"])
        given = [n for n in _FOLDER_ARGUMENTS if isinstance(arguments.get(n), str | os.PathLike)]
        if given and not _LOGGERS_WITH_IDS & _class_names(class_path):
            for name in given:
                yield class_path, arguments, name
    for item in value.values():
        yield from _folder_arguments(item)


def _class_names(class_path: str) -> set[str]:
    """Return the names of a class and of its base classes."""
    # the path may also be that of a function that returns an object
    return {base.__name__ for base in getattr(import_class(class_path), "__mro__", ())}
