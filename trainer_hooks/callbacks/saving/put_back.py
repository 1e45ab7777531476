"""What a file holds of a training, put back into one that is under way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks.checkpoint import load_checkpoint, load_weights

if TYPE_CHECKING:
    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["put_back"]


def put_back(trainer: Trainer, module: Module, path: str) -> None:
    """Give the module the weights in a file, and optimizers and schedulers what it holds of them.

    Counters, random numbers and callbacks stay as they are.

    Args:
        trainer: whose optimizers and schedulers.
        module: whose weights.
        path: a checkpoint, or weights alone.

    Raises:
        CheckpointError: there is no such file, or it does not fit the module.
    """
    checkpoint = load_checkpoint(path)
    load_weights(module, checkpoint["state_dict"], path, strict=module.strict_loading)
    states = checkpoint.get("optimizer_states", ())
    for optimizer, state in zip(trainer.optimizers, states, strict=False):
        optimizer.load_state_dict(state)
    states = checkpoint.get("lr_schedulers", ())
    for config, state in zip(trainer.lr_scheduler_configs, states, strict=False):
        config.scheduler.load_state_dict(state)
