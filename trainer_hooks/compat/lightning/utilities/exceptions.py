"""What may be raised, where Lightning has it."""

from __future__ import annotations

from trainer_hooks import TrainerHooksError as MisconfigurationException
from trainer_hooks.errors import TerminationSignal as SIGTERMException

__all__ = ["MisconfigurationException", "SIGTERMException"]
