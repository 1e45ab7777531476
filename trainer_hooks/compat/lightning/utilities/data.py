"""Batches, where Lightning has them."""

from __future__ import annotations

from trainer_hooks.compat.refusing import refusing
from trainer_hooks.data import count_samples as extract_batch_size

__all__ = ["extract_batch_size"]

__getattr__ = refusing(__name__, {"has_len_all_ranks": "use len(loader)"})
