"""The folders that a config names for checkpoints and logs: each trial has its own.

A relative one lies in the folder of the trial. All trials would share any other.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer_hooks.checkpoint.paths import is_remote
from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator, MutableMapping

_FOLDER_ARGUMENTS = ("dirpath", "save_dir", "folder")
"""The names under which callbacks, loggers and profilers take the folder that they write to."""


def check_trial_folders(options: Any) -> None:
    """Check that each folder of the Trainer's options can lie in that of a trial.

    Args:
        options: the parsed options of the Trainer, as plain data.

    Raises:
        OptionError: one is absolute, an address, or leads out of the trial's folder.
    """
    for class_path, arguments, name in _folder_arguments(options):
        folder = arguments[name]
        is_outside = Path(os.path.normpath(folder)).parts[:1] == (os.pardir,)
        if is_remote(folder) or Path(folder).expanduser().is_absolute() or is_outside:
            raise OptionError(
                f"{name} {folder!r} of {class_path.rpartition('.')[2]} in the config: all trials "
                "would write there, and resume from each other's checkpoints. Give a relative "
                "path, which lies in the folder of each trial, or leave it out where it has a "
                "default."
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
        for name in _FOLDER_ARGUMENTS:
            if isinstance(arguments.get(name), str | os.PathLike):
                yield str(value["class_path"]), arguments, name
    for item in value.values():
        yield from _folder_arguments(item)
