"""The tuner, where Lightning has it."""

from __future__ import annotations

from trainer_hooks import Tuner

__all__ = ["Tuner"]
