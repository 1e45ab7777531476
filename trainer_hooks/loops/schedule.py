"""When learning rate schedulers step."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from trainer_hooks._log import warn
from trainer_hooks.errors import MetricError, StopTraining, TrainerHooksWarning, nearest
from trainer_hooks.loops.steps import overrides

if TYPE_CHECKING:
    from trainer_hooks.context import RunContext
    from trainer_hooks.module import LRSchedulerConfig

__all__ = ["SchedulerStepper"]


class SchedulerStepper:
    """Step the schedulers of a run where they are due.

    Args:
        context: the run.
    """

    def __init__(self, context: RunContext) -> None:
        self._context = context
        configs = context.training.optimization.schedulers
        # in manual optimization the module steps them
        self._configs = configs if context.module.automatic_optimization else []
        self.has_step_schedulers = any(config.interval == "step" for config in self._configs)
        self._steps = context.training.progress.steps_completed
        # a value that was logged there would belong to no batch
        is_overridden = overrides(context.module, "lr_scheduler_step")
        self._around = context.training.metrics.closed if is_overridden else nullcontext

    def after_step(self) -> None:
        """Step those that count optimizer steps, unless the window's batches were all skipped."""
        count = self._context.training.progress.steps_completed
        if count == self._steps:
            return
        self._steps = count
        for config in self._configs:
            if config.interval == "step" and count % config.frequency == 0:
                self._step(config)

    def after_batches(self) -> None:
        """Step those that count epochs and need no metric, once, as the last batch is done."""
        batch = self._context.batch
        if not batch.has_scheduled:
            batch.has_scheduled = True
            self._after_epoch(on_plateau=False)

    def after_epoch(self) -> None:
        """Step those that count epochs and watch a metric: the epoch's metrics are there."""
        self._after_epoch(on_plateau=True)

    def _after_epoch(self, on_plateau: bool) -> None:
        count = self._context.training.progress.epochs_completed + 1
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
            metrics = self._context.training.metrics.callback_metrics
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
            if self._context.processes.is_several and config.interval == "step":
                metric = self._context.processes.broadcast(metric)  # of a step each has its own
        try:
            with self._around():
                self._context.module.lr_scheduler_step(config.scheduler, metric)
        except StopTraining as request:
            self._context.stop_by(request)
