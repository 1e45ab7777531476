"""The number of a checkpoint's format."""

from __future__ import annotations

from typing import Any

from trainer_hooks.errors import CheckpointError

FORMAT = 4
"""Number of the layout of a checkpoint, kept in `checkpoint["trainer_hooks"]`.

A change of the layout that a reader must know raises it, and files of format 4 and later are still
read then: tests/checkpoint/examples has one.
"""


def require_format(checkpoint: dict[str, Any], source: str) -> None:
    """Raise unless a checkpoint that trainer_hooks wrote has a format that this version reads.

    Args:
        checkpoint: the checkpoint.
        source: the file, for messages.

    Raises:
        CheckpointError: its format is newer, from before the first that is kept, or missing.
    """
    own = checkpoint["trainer_hooks"]
    number = own.get("format") if isinstance(own, dict) else None
    if type(number) is not int or number < 1:  # not isinstance: True is an int, too
        raise CheckpointError(
            f"checkpoint {source!r} says nothing of its format: it is damaged, or was changed by "
            "another tool. Resume from another one."
        )
    if number == FORMAT:
        return
    saved = f"checkpoint {source!r} has format {number}, saved by trainer_hooks"
    if number > FORMAT:
        raise CheckpointError(
            f"{saved} {own.get('version')}: this version knows formats up to {FORMAT}. Upgrade "
            "trainer-hooks."
        )
    raise CheckpointError(
        f"{saved} before its first version: this version reads format {FORMAT}. Load its weights "
        "by torch.load(path)['state_dict']."
    )
