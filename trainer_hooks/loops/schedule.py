"""When learning rate schedulers step, and when a validation is due."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from trainer_hooks._log import warn
from trainer_hooks.errors import (
    MetricError,
    OptionError,
    StopTraining,
    TrainerHooksWarning,
    nearest,
)

if TYPE_CHECKING:
    from trainer_hooks.context import RunContext
    from trainer_hooks.optimization import LRSchedulerConfig

__all__ = ["SchedulerStepper", "ValidationSchedule"]


class SchedulerStepper:
    """Step the schedulers of a run where they are due.

    Args:
        context: the run.
    """

    def __init__(self, context: RunContext) -> None:
        self._context = context
        configs = context.optimization.schedulers
        # in manual optimization the module steps them
        self._configs = configs if context.module.automatic_optimization else []
        self.has_step_schedulers = any(config.interval == "step" for config in self._configs)
        self._steps = context.progress.steps_completed

    def after_step(self) -> None:
        """Step those that count optimizer steps, unless the window's batches were all skipped."""
        count = self._context.progress.steps_completed
        if count == self._steps:
            return
        self._steps = count
        for config in self._configs:
            if config.interval == "step" and count % config.frequency == 0:
                self._step(config)

    def after_batches(self) -> None:
        """Step those that count epochs and need no metric: the epoch's last batch is done."""
        self._after_epoch(on_plateau=False)

    def after_epoch(self) -> None:
        """Step those that count epochs and watch a metric: the epoch's metrics are there."""
        self._after_epoch(on_plateau=True)

    def _after_epoch(self, on_plateau: bool) -> None:
        count = self._context.progress.epochs_completed + 1
        for config in self._configs:
            if (
                config.interval == "epoch"
                and config.reduce_on_plateau is on_plateau
                and count % config.frequency == 0
            ):
                self._step(config)

    def _step(self, config: LRSchedulerConfig) -> None:
        metric: Any = None
        if config.reduce_on_plateau:
            metrics = self._context.metrics.callback_metrics
            name = str(config.monitor)
            if name not in metrics:
                message = (
                    f"the scheduler {type(config.scheduler).__qualname__} monitors {name!r}, which "
                    f"was not logged: logged are {', '.join(sorted(metrics)) or 'no metrics'}."
                    f"{nearest(name, metrics)} Log it with self.log({name!r}, ...), or set "
                    "'strict': False to leave the scheduler out where it is missing."
                )
                if config.strict:
                    raise MetricError(message)
                warn(message, TrainerHooksWarning)
                return
            metric = metrics[name]
        try:
            self._context.module.lr_scheduler_step(config.scheduler, metric)
        except StopTraining as request:
            self._context.stop_by(request)


class ValidationSchedule:
    """When validation is due inside fit.

    Args:
        context: the run.
        num_batches: training batches an epoch.

    Attributes:
        every: batches between two validations, or infinity: at the end of the epoch.

    Raises:
        OptionError: `val_check_interval` does not fit the number of batches.
    """

    def __init__(self, context: RunContext, num_batches: int | float) -> None:
        self._context = context
        self._is_on = bool(context.evaluation["validate"])
        self.every = self._batches_between(num_batches) if self._is_on else math.inf

    def is_due_on_batch(self) -> bool:
        """Return whether a validation is due after the batch just done, inside the epoch."""
        if self.every == math.inf or not self._is_on:
            return False
        progress = self._context.progress
        if self._context.plan.check_val_every_n_epoch is None:
            return progress.batches_completed % self.every == 0
        return progress.batches_in_epoch % self.every == 0 and self._is_due_in_epoch()

    def is_due_after_batches(self, *, is_complete: bool) -> bool:
        """Return whether a validation is due at the end of the epoch's batches.

        It is after what may be the last batches of all, too, so that the final weights are
        validated and what watches a metric finds it.

        Args:
            is_complete: whether all batches of the epoch were done; else something ended it.
        """
        progress = self._context.progress
        if not self._is_on or progress.validated_at == progress.batches_completed:
            return False
        is_at_end = self.every == math.inf or not is_complete or self._context.has_to_stop
        return is_at_end and self._is_due_in_epoch()

    def _is_due_in_epoch(self) -> bool:
        every_n = self._context.plan.check_val_every_n_epoch
        return every_n is None or (self._context.progress.epochs_completed + 1) % every_n == 0

    def _batches_between(self, num_batches: int | float) -> int | float:
        plan = self._context.plan
        interval = plan.val_check_interval
        if isinstance(interval, int):
            if plan.check_val_every_n_epoch is not None and interval > num_batches:
                raise OptionError(
                    f"Trainer(val_check_interval={interval!r}): an epoch has {num_batches} "
                    "batches, so validation would never run. Give a smaller number, or count over "
                    "epochs with check_val_every_n_epoch=None."
                )
            return interval
        if interval == 1.0:
            return math.inf
        if num_batches == math.inf:
            raise OptionError(
                f"Trainer(val_check_interval={interval!r}) is a share of an epoch, but the "
                "training loader has no length: give a number of batches as an int."
            )
        return max(1, int(num_batches * interval))
