"""Formats of a checkpoint, and the migrations from each format to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.checkpoint.encoding import Encoder
from trainer_hooks.checkpoint.lightning import loops_of
from trainer_hooks.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable


def _to_2(checkpoint: dict[str, Any]) -> dict[str, Any]:
    """Migrate from format 1 to 2: encoded values, state versions, loops as Lightning writes them.

    Format 1 held plain data alone: a dict there that looks like an encoded value is a user's own.
    """
    # so that decoding returns a dict that only looks encoded unchanged
    encoder = Encoder(checkpoint)
    changed = {key: encoder.encode(value) for key, value in checkpoint.items()}
    own = {**changed["trainer_hooks"]}
    if "callbacks" in changed:
        # before there were versions, every state was of the first
        own["state_versions"] = dict.fromkeys(changed["callbacks"], 1)
    progress = changed["loops"].get("fit_loop")
    if progress is not None:
        own["progress"] = progress
        changed["loops"] = loops_of(progress)
        # format 1 did not record whether it was saved inside a batch; most checkpoints were not
        own |= {"world_size": 1, "inside_batch": False, "stream": _stream_of_2(own["stream"])}
    return {**changed, "trainer_hooks": own}


def _stream_of_2(stream: dict[str, Any]) -> dict[str, Any]:
    """Add the loader positions and whether workers drew random numbers to a stream's state."""
    keeps_position = stream.get("loader") is not None
    return {
        **stream,
        "positions": [stream["loader"]] if keeps_position else [],
        "workers_have_drawn": not keeps_position,
    }


def _to_3(checkpoint: dict[str, Any]) -> dict[str, Any]:
    """Migrate from format 2 to 3: an entry for every part of the state registry.

    Format 2 had no modes and no generators.
    """
    own = checkpoint["trainer_hooks"]
    if "progress" not in own:
        return checkpoint  # weights alone
    empty: dict[str, Any] = {
        "clock": {}, "wall_times": {}, "history": {}, "evaluated": {}, "evaluators": {},
        "loggers": [], "modes": {}, "generators": {}, "loop": {},
    }  # fmt: skip
    return {**checkpoint, "trainer_hooks": {**empty, **own}}


def _to_4(checkpoint: dict[str, Any]) -> dict[str, Any]:
    """Migrate from format 3 to 4: of each rank but 0, the difference from rank 0's state.

    Nothing changes: format 3 had all of each rank's state, which is still read.
    """
    return checkpoint


# one that was released never changes: files of its format are still converted by it
MIGRATIONS: tuple[Callable[[dict[str, Any]], dict[str, Any]], ...] = (_to_2, _to_3, _to_4)
"""Migrations from format 1 to 2, from 2 to 3 and so on. tests/checkpoint/examples has a file of
each."""

FORMAT = len(MIGRATIONS) + 1
"""Number of the present layout of a checkpoint, kept in `checkpoint["trainer_hooks"]`."""


def migrate(checkpoint: dict[str, Any], source: str) -> dict[str, Any]:
    """Return a checkpoint in the present format.

    Args:
        checkpoint: a checkpoint that trainer_hooks wrote; it is not changed.
        source: the file, for messages.

    Raises:
        CheckpointError: its format is newer, or missing.
    """
    own = checkpoint["trainer_hooks"]
    number = own.get("format") if isinstance(own, dict) else None
    if type(number) is not int or number < 1:  # not isinstance: True is an int, too
        raise CheckpointError(
            f"checkpoint {source!r} says nothing of its format: it is damaged, or was changed by "
            "another tool. Resume from another one."
        )
    if number > FORMAT:
        raise CheckpointError(
            f"checkpoint {source!r} has format {number}, saved by trainer_hooks "
            f"{own.get('version')}: this version knows formats up to {FORMAT}. Upgrade "
            "trainer-hooks."
        )
    try:
        for change in MIGRATIONS[number - 1 :]:
            checkpoint = change(checkpoint)
    # a file that another program edited may lack any key
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"checkpoint {source!r} is not what a file of format {number} is: it is damaged, or "
            f"was changed by another tool ({type(error).__name__}: {error}). Resume from another "
            "one."
        ) from error
    return {**checkpoint, "trainer_hooks": {**checkpoint["trainer_hooks"], "format": FORMAT}}
