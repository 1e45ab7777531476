"""The parts of monitors that `compat` and `adapters` build on.

A monitor logs when `is_logged` or `closes_window` says so; it computes statistics of activations,
gradient norms and FLOPs, and asks for the CUDA allocator, with these functions. Code outside
`trainer_hooks.callbacks` imports them from here, so that the files in `monitors` can change freely.
"""

from __future__ import annotations

from trainer_hooks.callbacks.base import closes_window, is_logged
from trainer_hooks.callbacks.monitors.activation_monitor import activation_statistics
from trainer_hooks.callbacks.monitors.cuda_memory import is_allocator_readable
from trainer_hooks.callbacks.monitors.gradient_norm_monitor import gradient_norms, norm_of_norms
from trainer_hooks.callbacks.monitors.runtime_estimator import SECONDS
from trainer_hooks.callbacks.monitors.throughput import DTYPES, available_flops, batch_flops

__all__ = [
    "DTYPES",
    "SECONDS",
    "activation_statistics",
    "available_flops",
    "batch_flops",
    "closes_window",
    "gradient_norms",
    "is_allocator_readable",
    "is_logged",
    "norm_of_norms",
]
