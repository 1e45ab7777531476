"""`CombinedLoader`, where Lightning has it."""

from __future__ import annotations

from trainer_hooks.utilities import CombinedLoader

__all__ = ["CombinedLoader"]
