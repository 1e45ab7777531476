"""What is made sure of in a config that the parser takes for granted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trainer_hooks.checkpoint import is_remote
from trainer_hooks.errors import UsageError

if TYPE_CHECKING:
    from jsonargparse import Namespace

__all__ = ["check_values"]

_CKPT_WORDS = ("auto", "best", "last")
"""What `ckpt_path` may be beside the path of a checkpoint."""


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
