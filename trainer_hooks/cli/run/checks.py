"""What is made sure of in a config that the parser takes for granted."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from trainer_hooks.checkpoint import is_remote
from trainer_hooks.errors import UsageError, nearest

if TYPE_CHECKING:
    from jsonargparse import Namespace

    from trainer_hooks.cli.run.parser import TrainerParser

__all__ = ["check_environment", "check_values"]

_CKPT_WORDS = ("auto", "best", "last")
"""What `ckpt_path` may be beside the path of a checkpoint."""


def check_environment(prefix: str, parser: TrainerParser) -> None:
    """Make sure that each variable of a command holds an argument; the parser passes over others.

    Args:
        prefix: what their names begin with; with that of no command nothing is looked at.
        parser: whose arguments they are.

    Raises:
        UsageError: one does not.
    """
    keys = {key.lower(): key for key in parser.argument_keys if not key.endswith("help")}
    for name in sorted(os.environ):
        key = name.removeprefix(prefix.upper()).replace("__", ".").lower()
        if not prefix.endswith("__") or not name.startswith(prefix.upper()) or key in keys:
            continue
        group = key.partition(".")[0]
        advice = nearest(key, keys.values())
        if parser.is_open(group):
            advice = f" Give class_path and init_args to {prefix.upper()}{group.upper()}."
        raise UsageError(f"{name} of the environment: there is no argument {key}.{advice}")


def check_values(config: Namespace) -> None:
    """Make sure that the Trainer's options are some, and that the checkpoint is there.

    Raises:
        UsageError: they are not, or it is not.
    """
    options, path = config.get("trainer"), config.get("ckpt_path")
    if options is not None and not hasattr(options, "as_dict"):
        raise UsageError(f"trainer: {options!r} is no mapping of options. Write one.")
    if path is None or path in _CKPT_WORDS or is_remote(path) or Path(path).exists():
        return
    raise UsageError(
        f"ckpt_path: {path!r} is not there. Give a checkpoint, or one of {', '.join(_CKPT_WORDS)}."
    )
