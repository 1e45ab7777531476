"""Portrait: a trainer in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks.clock import EpochStage

if TYPE_CHECKING:
    from trainer_hooks.trainer.run.session import Session

__all__ = ["portrait"]


def portrait(name: str, session: Session) -> str:
    """Return what a trainer was given, what it is made of, and how far it is.

    Args:
        name: the name of its class.
        session: what it consists of.
    """
    given = session.config.given
    callbacks = ", ".join(type(each).__name__ for each in session.connector.callbacks)
    module = session.module
    parts = [
        f"{session.device}, {session.precision.name}",
        f"callbacks: {callbacks}" if callbacks else "no callbacks",
        *(["nothing was run yet"] if module is None else [_place(session, type(module).__name__)]),
    ]
    return f"<{name}({given}): {'; '.join(parts)}>"


def _place(session: Session, module: str) -> str:
    """Return what it does or did last, and how far the training is."""
    progress = session.training.progress
    if session.fn is not None:
        doing = f"in {session.fn} of {module}"
    else:
        doing = f"{module}, {session.state.status}"
    place = f"epoch {progress.epochs_completed}, step {progress.steps_completed}"
    if progress.stage is EpochStage.BATCHES:
        place += f", after {progress.batches_in_epoch} batches"
    return doing if progress.is_fresh else f"{doing}, {place}"
