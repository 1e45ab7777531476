"""Replay: the training step on each training batch once more, without learning from it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from trainer_hooks.errors import UsageError
from trainer_hooks.loops.steps import overrides
from trainer_hooks.metrics import MetricStore, Scope

if TYPE_CHECKING:
    from trainer_hooks.context import RunContext

__all__ = ["replay"]


def replay(context: RunContext) -> int:
    """Run the module on an epoch of training batches; return how many there were.

    The batches are those of the last epoch. It is run in the mode that it is in, without gradients
    and without hooks; what it logs is dropped. So only what a forward changes is changed, such as
    the statistics of BatchNorm. The random numbers and the loader's generators are put back.

    Raises:
        UsageError: the module optimizes by itself in its training step, or there is no telling
            where an epoch ends.
    """
    module, stream = context.module, context.data.stream
    last_epoch = max(context.training.progress.epochs_completed - 1, 0)
    name = type(module).__qualname__
    if not module.automatic_optimization:
        raise UsageError(
            f"trainer.replay_training_data(): {name} optimizes by itself, so its training_step "
            "cannot be run without learning. Run its forward on the batches instead, as "
            "torch.optim.swa_utils.update_bn does."
        )
    if stream is None or stream.num_batches == math.inf:
        raise UsageError(
            "trainer.replay_training_data(): the training loader has no length, so there is no "
            "telling where an epoch ends. Pass Trainer(limit_train_batches=...) a number."
        )
    dropped = MetricStore()
    dropped.enter(Scope.TRAIN_BATCH)
    has_step = overrides(module, "training_step")
    module.attach(context.trainer, dropped)
    count = 0
    try:
        with (
            torch.no_grad(),
            context.parts.put_back("buffers"),
            stream.replayed(last_epoch) as batches,
        ):
            for batch in batches:
                if context.transfer.is_needed:
                    batch = context.transfer(batch)
                dropped.batch = batch
                with context.precision.forward_context():
                    if has_step:
                        module.training_step(batch, count)
                    else:
                        module(batch)
                count += 1
    finally:
        dropped.drop(Scope.TRAIN_BATCH)
        module.attach(context.trainer, context.training.metrics)
    return count
