"""`grad_norm`, where Lightning has it."""

from __future__ import annotations

from trainer_hooks.utilities import grad_norm

__all__ = ["grad_norm"]
