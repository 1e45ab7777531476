"""Finetuning, where Lightning has it."""

from __future__ import annotations

from trainer_hooks.callbacks import BackboneFinetuning, BaseFinetuning
from trainer_hooks.callbacks.finetuning.backbone_finetuning import multiplicative

__all__ = ["BackboneFinetuning", "BaseFinetuning", "multiplicative"]
