"""Seeds, and algorithms that give the same numbers again."""

from __future__ import annotations

import torch

from trainer_hooks.runtime import seed_everything

__all__ = ["configure_deterministic_mode", "seed_all"]


def seed_all(seed: int) -> None:
    """Seed Python, NumPy and torch."""
    seed_everything(seed)


def configure_deterministic_mode() -> None:
    """Let torch use only algorithms that give the same numbers again."""
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
