"""An example plugin for trainer_hooks: a run journal that nobody has to mention."""

from __future__ import annotations

from trainer_hooks_example.journal import RunJournal

__all__ = ["RunJournal"]
