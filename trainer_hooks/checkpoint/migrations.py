"""Formats of a checkpoint, and how one of an older format becomes one of the present."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.checkpoint.encoding import Encoder
from trainer_hooks.checkpoint.lightning import loops_of
from trainer_hooks.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["FORMAT", "MIGRATIONS", "migrate"]


def _to_2(checkpoint: dict[str, Any]) -> dict[str, Any]:
    """Encoded values, versions of callback states, and loops as Lightning writes them.

    Format 1 held plain data alone: what looks like an encoded value there was a user's own dict.
    """
    encoder = Encoder(checkpoint)
    changed = {key: encoder.encode(value) for key, value in checkpoint.items()}
    own = {**changed["trainer_hooks"]}
    if "callbacks" in changed:
        own["state_versions"] = dict.fromkeys(changed["callbacks"], 1)
    progress = changed["loops"].get("fit_loop")
    if progress is not None:
        own["progress"] = progress
        changed["loops"] = loops_of(progress)
        # whether it was saved inside a batch was not noted
        own |= {"world_size": 1, "inside_batch": False, "stream": _stream_of_2(own["stream"])}
    return {**changed, "trainer_hooks": own}


def _stream_of_2(stream: dict[str, Any]) -> dict[str, Any]:
    """Positions of loaders that keep their own, and whether workers drew random numbers."""
    keeps_position = stream.get("loader") is not None
    return {
        **stream,
        "positions": [stream["loader"]] if keeps_position else [],
        "workers_have_drawn": not keeps_position,
    }


def _to_3(checkpoint: dict[str, Any]) -> dict[str, Any]:
    """What moves in a run, each by its name; format 2 knew nothing of modes and generators."""
    own = checkpoint["trainer_hooks"]
    if "progress" not in own:
        return checkpoint
    empty: dict[str, Any] = {
        "clock": {}, "wall_times": {}, "history": {}, "evaluated": {}, "evaluators": {},
        "loggers": [], "modes": {}, "generators": {},
    }  # fmt: skip
    return {**checkpoint, "trainer_hooks": {**empty, **own}}


MIGRATIONS: tuple[Callable[[dict[str, Any]], dict[str, Any]], ...] = (_to_2, _to_3)
"""From format 1 to 2, from 2 to 3, and so on. Each has an example in tests/checkpoint/examples."""

FORMAT = len(MIGRATIONS) + 1
"""Number of the present layout of a checkpoint, kept in `checkpoint["trainer_hooks"]`."""


def migrate(checkpoint: dict[str, Any], source: str) -> dict[str, Any]:
    """Return a checkpoint in the present format.

    Args:
        checkpoint: one that trainer_hooks has written; it is not changed.
        source: where it comes from, for messages.

    Raises:
        CheckpointError: its format is newer, or none.
    """
    own = checkpoint["trainer_hooks"]
    found = own.get("format") if isinstance(own, dict) else None
    if type(found) is not int or found < 1:
        raise CheckpointError(
            f"checkpoint {source!r} says nothing of its format: it is damaged, or was changed by "
            "another tool. Resume from another one."
        )
    if found > FORMAT:
        raise CheckpointError(
            f"checkpoint {source!r} has format {found}, saved by trainer_hooks "
            f"{own.get('version')}: this version knows formats up to {FORMAT}. Upgrade "
            "trainer-hooks."
        )
    try:
        for change in MIGRATIONS[found - 1 :]:
            checkpoint = change(checkpoint)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"checkpoint {source!r} is not what a file of format {found} is: it is damaged, or was "
            f"changed by another tool ({type(error).__name__}: {error}). Resume from another one."
        ) from error
    return {**checkpoint, "trainer_hooks": {**checkpoint["trainer_hooks"], "format": FORMAT}}
