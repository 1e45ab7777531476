"""The arguments of a training command: its subcommand, and the line that a shell completes."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import Any

SUBCOMMANDS: Mapping[str, tuple[str, ...]] = {
    "fit": ("model", "train_dataloaders", "val_dataloaders", "datamodule"),
    "validate": ("model", "dataloaders", "datamodule"),
    "test": ("model", "dataloaders", "datamodule"),
    "predict": ("model", "dataloaders", "datamodule"),
}
"""The commands, and the arguments of the Trainer's method that are no options of each."""


def is_config_object(args: Any) -> bool:
    """Return whether arguments are a dict or a jsonargparse Namespace, and no command line."""
    return isinstance(args, Mapping) or hasattr(args, "as_dict")


def find_subcommand(args: Any) -> str | None:
    """Return the command in command-line arguments or in a config object; None without one."""
    if is_config_object(args):
        named = args.get("subcommand")
        return named or next((name for name in SUBCOMMANDS if name in args), None)
    return next((word for word in args if word in SUBCOMMANDS), None)


def import_class(class_path: str) -> Any:
    """Import the class of a class path."""
    module, _, name = class_path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def is_completing() -> bool:
    """Return whether a shell started this process to complete a line."""
    return "_ARGCOMPLETE" in os.environ


def words_to_complete() -> list[str]:
    """Return the arguments on the line after the program's name."""
    start = int(os.environ.get("_ARGCOMPLETE") or 1)
    return os.environ.get("COMP_LINE", "").split()[start:]
