"""What is taken over from a trainer of trainer_hooks that knows nothing of Composer."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from trainer_hooks._log import warn
from trainer_hooks.compat.composer.core.callback import Callback
from trainer_hooks.compat.composer.core.event import Event
from trainer_hooks.compat.composer.core.timestamp import Timestamp
from trainer_hooks.data import defines
from trainer_hooks.errors import TrainerHooksWarning
from trainer_hooks.module import Module

if TYPE_CHECKING:
    from trainer_hooks.compat.composer.running.links import Links
    from trainer_hooks.context import Trainer

__all__ = ["look_at", "timestamp_of", "warn_of_own_step"]

_INSIDE_STEP = (Event.BEFORE_FORWARD, Event.AFTER_FORWARD, Event.BEFORE_LOSS, Event.AFTER_LOSS)


def look_at(trainer: Trainer, links: Links) -> None:
    """Take over how a trainer of trainer_hooks trains, on what, and for how long."""
    state = links.state
    state.optimizers = list(trainer.optimizers)
    state.schedulers = [config.scheduler for config in trainer.lr_scheduler_configs]
    state.train_dataloader = trainer.train_dataloader
    length = trainer.num_training_batches
    state.set_dataloader(
        state.train_dataloader, "train", -1 if length == float("inf") else int(length)
    )
    duration = trainer.max_duration
    if duration is not None and duration.unit.value != "st":
        state.limit(str(duration))
    elif trainer.max_steps >= 0:
        state.limit(f"{trainer.max_steps}ba")
    elif trainer.max_epochs >= 0:
        state.limit(trainer.max_epochs)


def warn_of_own_step(links: Links, module: Module) -> None:
    """Tell who listens to the forward and the loss of a module that does both by itself."""
    if not defines(module, "training_step", Module):
        return
    for one in links.state.callbacks:
        names = [e.value for e in _INSIDE_STEP if not _is_empty(getattr(one, e.value, None))]
        if names and isinstance(one, Callback):
            warn(
                f"{', '.join(names)} of {type(one).__qualname__}: {type(module).__qualname__} has "
                "a training_step of its own, so nothing calls it. Define forward(batch) and "
                "loss(outputs, batch) instead of the step.",
                TrainerHooksWarning,
            )


def _is_empty(method: object) -> bool:
    return method is None or getattr(method, "is_empty_hook", False) is True


def timestamp_of(trainer: Trainer) -> Timestamp:
    """Return how far a training is of which no timestamp was kept."""
    clock, progress = trainer.clock, trainer.progress
    is_open = clock.is_epoch_open
    return Timestamp().copy(
        iteration=clock.iterations,
        epoch=clock.epochs,
        batch=progress.batches_stepped,
        sample=clock.samples,
        token=clock.tokens,
        epoch_in_iteration=clock.epochs_in_iteration,
        token_in_iteration=clock.tokens_in_iteration,
        batch_in_epoch=clock.batches_in_epoch if is_open else 0,
        sample_in_epoch=clock.samples_in_epoch if is_open else 0,
        token_in_epoch=clock.tokens_in_epoch if is_open else 0,
        total_wct=timedelta(seconds=clock.train_seconds),
    )
