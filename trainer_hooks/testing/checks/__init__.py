"""The checks, one small function each, and the table of them."""

from trainer_hooks.testing.checks.table import CHECKS, Check, Note

__all__ = ["CHECKS", "Check", "Note"]
