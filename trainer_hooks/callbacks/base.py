"""Base classes and rank helpers that built-in callbacks, `adapters` and `compat` build on.

With `monitored_metric` and the other modules directly in this folder, this is all
that code outside `trainer_hooks.callbacks` may use of it beside the public names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import torch

from trainer_hooks._names import ours
from trainer_hooks.callback import Callback
from trainer_hooks.clock.schedules import DueCondition, DueTracker
from trainer_hooks.connector.state_types import checks_state
from trainer_hooks.errors import CallbackError, UsageError
from trainer_hooks.hooks.band import Band
from trainer_hooks.hooks.spec import keeps_optimizers
from trainer_hooks.runtime.device import require_usable

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module

Decision = TypeVar("Decision")


class ScheduledCallback(Callback):
    """Base class of callbacks that act at an interval, also across a resume.

    A subclass asks `self._is_due(trainer)` at a hook.

    Args:
        when: the condition under which an action is due; None for never, without a state.

    State: the clock's counts at the last question, so that a resume misses no due moment.
    """

    def __init__(self, when: DueCondition | None) -> None:
        self._has_schedule = when is not None
        self._schedule = DueTracker(when or DueCondition())  # without a condition it is not asked

    def state_dict(self) -> dict[str, Any]:
        """Return the clock's counts at the last question."""
        return {"asked": self._schedule.state_dict()} if self._has_schedule else {}

    @checks_state({}, {"asked": dict[str, float]})
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the clock's counts at the last question."""
        if self._has_schedule and "asked" in state_dict:
            self._schedule.load_state_dict(state_dict["asked"])

    def _is_due(self, trainer: Trainer) -> bool:
        """Return whether an action is due; the next question compares with this clock."""
        return self._has_schedule and self._schedule.is_due(trainer.clock)

    @keeps_optimizers
    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Reset the schedule when a new training begins."""
        if trainer.progress.is_new_training:
            self._schedule.forget()

    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """Start counting from the clock's present reading, or from the restored one."""
        if self._has_schedule:
            self._schedule.start(trainer.clock)


class WeightOwner(Callback):
    """Base class of callbacks that replace a module's weights or layers: average, prune, quantize.

    Only one of them can take part in a fit. A subclass resets its own state in `_reset`, which is
    called when a new training begins.

    Raises:
        CallbackError: in a fit, another callback replaces the weights too; it is named.
        OptionError: this machine lacks the device that the subclass is to keep weights on.
    """

    _device: torch.device | None = None

    # first, so that other callbacks read the weights that this one puts in
    band: ClassVar[Band] = Band.TRANSFORM

    def setup(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Check device and other callbacks that replace weights; reset in a new training."""
        if stage == "fit":
            # in `setup`, before any weight is copied or any layer is replaced
            require_whole_weights(trainer, self)
            require_no_owner(trainer, self)
            require_usable(self._device, "device", type(self).__name__)
            if trainer.progress.is_new_training:
                self._reset()

    def goes_with(self, other: WeightOwner) -> bool:
        """Return whether `other` and this callback can replace weights in the same fit."""
        return False

    def _reset(self) -> None:
        """Reset the state that an earlier training left."""


def require_logger(trainer: Trainer, user: str) -> None:
    """Check that a fit, unless it is a dry run, has a logger.

    Raises:
        UsageError: it has none.
    """
    if not trainer.loggers and not trainer.fast_dev_run:
        raise UsageError(
            f"{user} in a fit without a logger: it writes to loggers only. Pass one, as in "
            f"Trainer(logger=CSVLogger('logs')), or leave {user} out."
        )


def require_whole_weights(trainer: Trainer, user: Callback) -> None:
    """Check that this rank has all weights and not a shard, as a callback that copies them needs.

    Args:
        trainer: the trainer of the run.
        user: the callback that copies the weights, for the message.

    Raises:
        CallbackError: the strategy shards the weights.
    """
    if trainer.strategy.is_sharded:
        raise CallbackError(
            f"{type(user).__name__} with FSDP: it copies or changes the weights of the module, of "
            "which each process has a shard alone. Take it out, or use strategy='ddp'."
        )


def require_no_owner(trainer: Trainer, user: Callback) -> None:
    """Check that no other callback replaces the module's weights or layers.

    Args:
        trainer: the trainer whose callbacks are checked.
        user: the callback that another one would disturb.

    Raises:
        CallbackError: another `WeightOwner` takes part; it is named.
    """
    for other in trainer.callbacks:
        if other is user or not isinstance(other, WeightOwner):
            continue
        if not isinstance(user, WeightOwner) or not ours(user).goes_with(other):
            raise CallbackError(
                f"{type(user).__name__} beside {type(other).__name__}: only one callback can "
                "average, prune or quantize a module's weights, as each would undo the "
                "other's work. Take one of them out."
            )


def evaluation_stage(trainer: Trainer) -> str:
    """Return the stage of the running evaluation; a fit evaluates in its validations alone."""
    return "validate" if trainer.state.fn == "fit" else str(trainer.state.fn)


def is_real_fit(trainer: Trainer) -> bool:
    """Return whether a fit is running that is no dry run (`fast_dev_run`)."""
    return trainer.state.fn == "fit" and not trainer.fast_dev_run


def decide_on_rank_zero(trainer: Trainer, decide: Callable[[], Decision]) -> Decision:
    """Return rank 0's decision on all ranks.

    Files and values of a step may differ between ranks; one decision keeps them together. All ranks
    must call this function, which is a collective.

    Args:
        trainer: the trainer of the run.
        decide: computes the decision; called on rank 0 alone.

    Raises:
        TrainerHooksError: the error of rank 0; on the other ranks a CheckpointError with its text.
    """
    if trainer.world_size == 1:
        return decide()
    decision: Decision = trainer.strategy.run_on_rank_zero(decide)
    return decision


def union_over_ranks(trainer: Trainer, names: list[str], choices: tuple[str, ...]) -> list[str]:
    """Return the names that any rank reports, in the order of `choices`.

    All ranks then act alike. All must call this function, which is a collective.

    Args:
        trainer: the trainer of the run.
        names: the names that this rank reports.
        choices: all possible names, in the same order on all ranks.
    """
    if trainer.world_size == 1:
        return names
    # one reduction of numbers: cheaper than to gather lists of strings from all ranks
    reported = torch.tensor([float(name in names) for name in choices])
    by_any = trainer.strategy.reduce(reported, reduce_op="max").tolist()
    return [name for name, is_reported in zip(choices, by_any, strict=True) if is_reported]


def closes_window(trainer: Trainer) -> bool:
    """Return, in `on_train_batch_end`, whether the batch closed an accumulation window."""
    # the counter is 0 again once the window's step was made
    return trainer.progress.batches_in_window == 0


def is_logged(trainer: Trainer) -> bool:
    """Return, in `on_train_batch_end`, whether the loggers get values of this batch."""
    is_due = trainer.progress.batches_stepped % trainer.log_every_n_steps == 0
    return is_due and closes_window(trainer)


def will_be_logged(trainer: Trainer) -> bool:
    """Return, before an optimizer step, whether the loggers get values of that step."""
    # the counter is raised after the step, so the coming one is the next
    return (trainer.progress.batches_stepped + 1) % trainer.log_every_n_steps == 0


def is_evaluation_logged(trainer: Trainer, batch_idx: int) -> bool:
    """Return whether the loggers get values of this batch of an evaluation."""
    return not trainer.sanity_checking and (batch_idx + 1) % trainer.log_every_n_steps == 0
