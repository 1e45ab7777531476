"""A trainer at rest: what of it is copied and pickled."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainer_hooks.trainer.run.session import Session

__all__ = ["at_rest"]


def at_rest(session: Session, name: str) -> Session:
    """Return a session without what belongs to this trainer alone, as its profile of hooks does.

    Args:
        session: the trainer's.
        name: the trainer's class, for messages.

    Raises:
        TypeError: a run is under way, or there are several processes.
    """
    if session.fn is not None:
        raise TypeError(
            f"a {name} cannot be copied or pickled in its {session.fn}: the loaders, and what they "
            "have given out, belong to it alone. Do it before or after, or save what is trained "
            "with save_checkpoint."
        )
    if session.processes.topology.world_size > 1:
        raise TypeError(
            f"a {name} of several processes cannot be copied or pickled, as the others would not "
            "know of the copy. Make another one with the same options."
        )
    session.background.finish()
    session.background.release()
    return replace(session, hook_profile=None)
