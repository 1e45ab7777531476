"""`AttributeDict`, where Lightning has it: what `module.hparams` is."""

from __future__ import annotations

from trainer_hooks.checkpoint import HyperParameters as AttributeDict

__all__ = ["AttributeDict"]
