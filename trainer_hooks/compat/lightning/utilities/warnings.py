"""What may be warned of, where Lightning has it."""

from __future__ import annotations

from trainer_hooks import TrainerHooksWarning as PossibleUserWarning

__all__ = ["PossibleUserWarning"]
