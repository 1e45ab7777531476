"""Switches of torch that a run sets, and puts back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from contextlib import ExitStack

    from trainer_hooks.trainer.options import TrainerConfig

__all__ = ["set_backends"]


def set_backends(config: TrainerConfig, guards: ExitStack) -> None:
    """Set what the options ask for; `guards` puts it back.

    Args:
        config: `deterministic`, `benchmark` and `detect_anomaly`.
        guards: what is closed as the run ends.
    """
    if config.detect_anomaly:
        guards.enter_context(torch.autograd.set_detect_anomaly(True))
    benchmark = config.benchmark
    if config.deterministic:
        was = torch.are_deterministic_algorithms_enabled()
        warned = torch.is_deterministic_algorithms_warn_only_enabled()
        guards.callback(torch.use_deterministic_algorithms, was, warn_only=warned)
        torch.use_deterministic_algorithms(True, warn_only=config.deterministic == "warn")
        # which algorithm is the fastest is found out anew in each process
        benchmark = bool(benchmark)
    if benchmark is not None:
        guards.callback(_set_benchmark, torch.backends.cudnn.benchmark)
        _set_benchmark(benchmark)


def _set_benchmark(value: bool) -> None:
    torch.backends.cudnn.benchmark = value
