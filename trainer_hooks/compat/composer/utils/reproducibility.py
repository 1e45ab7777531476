"""Seeds and deterministic algorithms."""

from __future__ import annotations

import torch

from trainer_hooks.runtime.rng import seed_everything

__all__ = ["configure_deterministic_mode", "seed_all"]


def seed_all(seed: int) -> None:
    """Seed Python, NumPy and torch."""
    seed_everything(seed)


def configure_deterministic_mode() -> None:
    """Make torch use deterministic algorithms, and raise an error where it has none."""
    torch.use_deterministic_algorithms(True)
    # the benchmark may choose another algorithm in another run
    torch.backends.cudnn.benchmark = False
