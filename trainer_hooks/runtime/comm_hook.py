"""The user's own function that averages gradients, in the place of DistributedDataParallel's."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.nn.parallel import DistributedDataParallel

    from trainer_hooks.runtime.strategy import DDPStrategy

__all__ = ["is_plain_mean", "register_hook"]

_Hook = Callable[[Any, Any], Any]

_MEANS = ("allreduce_hook", "fp16_compress_hook", "bf16_compress_hook")


def is_plain_mean(options: DDPStrategy) -> bool:
    """Return whether every process gets the mean of each gradient, also of a small one.

    One that compresses more than a type does, or averages at some steps or in some processes alone,
    may not give it.
    """
    if options.ddp_comm_hook is None:
        return True
    return options.ddp_comm_wrapper is None and _is_of_torch(options.ddp_comm_hook)


def register_hook(ddp: DistributedDataParallel, options: DDPStrategy, group: Any) -> None:
    """Let the function that a strategy names average the gradients, if it names one."""
    hook, state = options.ddp_comm_hook, options.ddp_comm_state
    if hook is None:
        return
    if state is None and _is_of_torch(hook):
        state = group  # which else would be that of all processes there are
    if options.ddp_comm_wrapper is not None:
        hook = options.ddp_comm_wrapper(hook)
    ddp.register_comm_hook(state, _without_texts(hook))


def _without_texts(hook: _Hook) -> _Hook:
    """Return a function without annotations if they are texts, which torch takes for wrong ones."""
    if not any(isinstance(value, str) for value in inspect.get_annotations(hook).values()):
        return hook
    return lambda state, bucket: hook(state, bucket)


def _is_of_torch(hook: object) -> bool:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    return any(hook is getattr(default_hooks, name) for name in _MEANS)
