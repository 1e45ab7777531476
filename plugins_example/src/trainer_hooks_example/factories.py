"""What the entry point refers to."""

from __future__ import annotations

import os

from trainer_hooks_example.journal import RunJournal

__all__ = ["make_callbacks"]

_QUIET = "RUN_JOURNAL_QUIET"


def make_callbacks() -> list[RunJournal]:
    """Return the callbacks that this package adds to every Trainer.

    Called once for each Trainer, so each gets a journal of its own, and the environment is read
    then: `RUN_JOURNAL_QUIET=1` keeps the journal but prints nothing.
    """
    quiet = os.environ.get(_QUIET, "").strip().lower() not in {"", "0", "false", "no"}
    return [RunJournal(quiet=quiet)]
