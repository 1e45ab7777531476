"""The arguments of a training command: its subcommand, and the line that a shell completes."""

from __future__ import annotations

import os
import pkgutil
from collections.abc import Collection, Mapping
from typing import Any

SUBCOMMANDS: Mapping[str, tuple[str, ...]] = {
    "fit": ("model", "train_dataloaders", "val_dataloaders", "datamodule"),
    "validate": ("model", "dataloaders", "datamodule"),
    "test": ("model", "dataloaders", "datamodule"),
    "predict": ("model", "dataloaders", "datamodule"),
}
"""The training commands, and for each the arguments of the Trainer's method that are no options of
the command."""

METHOD_ARGUMENTS_OF_ALL = ("ckpt_path", "weights_only")
"""The options of the Trainer's method that every training command has."""


def is_config_object(args: Any) -> bool:
    """Return whether arguments are a dict or a jsonargparse Namespace, and no command line."""
    # by its method: jsonargparse is not imported here, so that other commands start without it
    return isinstance(args, Mapping) or hasattr(args, "as_dict")


def find_subcommand(args: Any, commands: Collection[str] = SUBCOMMANDS.keys()) -> str | None:
    """Return the command in command-line arguments or in a config object; None without one.

    Args:
        args: the command line, or the config object.
        commands: the names of the commands.
    """
    if is_config_object(args):
        # as in a config that was parsed; one written by hand may hold nothing but the command
        named = args.get("subcommand")
        return named or next((name for name in commands if name in args), None)
    return next((word for word in args if word in commands), None)


def import_class(class_path: str) -> Any:
    """Import the class of a class path; it may stand inside another class."""
    return pkgutil.resolve_name(class_path)


def is_completing() -> bool:
    """Return whether a shell started this process to complete a line."""
    # set by the shell functions of argcomplete, in bash and in zsh
    return "_ARGCOMPLETE" in os.environ


def words_to_complete() -> list[str]:
    """Return the arguments on the line after the program's name."""
    # the words that name the program: 1, or 2 for `python FILE`, 3 for `python -m MODULE`
    start = int(os.environ.get("_ARGCOMPLETE") or 1)
    # no shlex, which raises on the open quote of a word that is still being typed
    return os.environ.get("COMP_LINE", "").split()[start:]
