"""The commands of a training, and which one a command line gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["SUBCOMMANDS", "subcommand_in"]

SUBCOMMANDS: Mapping[str, tuple[str, ...]] = {
    "fit": ("model", "train_dataloaders", "val_dataloaders", "datamodule"),
    "validate": ("model", "dataloaders", "datamodule"),
    "test": ("model", "dataloaders", "datamodule"),
    "predict": ("model", "dataloaders", "datamodule"),
}
"""The commands, and the arguments of the Trainer's method that are no options of each."""


def subcommand_in(given: Any) -> str | None:
    """Return the command that the words of a command line, or a config as an object, give."""
    if isinstance(given, Mapping) or hasattr(given, "as_dict"):
        named = given.get("subcommand")
        return named or next((name for name in SUBCOMMANDS if name in given), None)
    return next((word for word in given if word in SUBCOMMANDS), None)
