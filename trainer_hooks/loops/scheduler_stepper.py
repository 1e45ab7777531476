"""Step learning rate schedulers when they are due."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from trainer_hooks._log import warn
from trainer_hooks.data.data_hooks import defines
from trainer_hooks.errors import MetricError, StopTraining, TrainerHooksWarning, did_you_mean
from trainer_hooks.module.module import Module
from trainer_hooks.module.optimization import fit_schedulers_to_groups

if TYPE_CHECKING:
    from trainer_hooks.context.context import RunContext
    from trainer_hooks.module.optimization import LRSchedulerConfig


class SchedulerStepper:
    """Step the learning rate schedulers of a run, each at its own interval.

    A scheduler that counts optimizer steps and monitors a metric waits for the validation of its
    batch: it steps once the next batch is there, or after the epoch's own validation.

    Args:
        context: the run context.
    """

    def __init__(self, context: RunContext) -> None:
        self._context = context
        configs = context.training.optimization.schedulers
        # with manual optimization the module steps its schedulers itself
        self._configs = configs if context.module.automatic_optimization else []
        self._steps = context.training.progress.steps_completed
        self._groups = context.training.optimization.num_groups
        # an overridden `lr_scheduler_step` is called between batches, where a logged value would
        # belong to none: `closed` makes logging there an error
        is_overridden = defines(context.module, "lr_scheduler_step", Module)
        self._closed_metrics = context.training.metrics.closed if is_overridden else nullcontext

    # asked anew each time: a callback may put a scheduler in or take one out, as those that warm up
    # and StochasticWeightAveraging do

    @property
    def has_step_schedulers(self) -> bool:
        """Whether a scheduler counts optimizer steps."""
        return bool(self._configs) and any(config.interval == "step" for config in self._configs)

    @property
    def has_waiting_schedulers(self) -> bool:
        """Whether one of those monitors a metric."""
        return bool(self._configs) and any(
            config.interval == "step" and config.reduce_on_plateau for config in self._configs
        )

    @property
    def _epoch(self) -> int:
        # the epoch that ends is not counted yet
        return self._context.training.progress.epochs_completed + 1

    def after_step(self) -> None:
        """Step the schedulers that count optimizer steps, unless no step was made.

        Those that monitor a metric become due. The loop calls it at the end of each accumulation
        window.
        """
        count = self._context.training.progress.steps_completed
        # all batches of the window were skipped: without a step the same count must not be due
        # twice
        if count == self._steps:
            return
        self._steps = count
        # in the counters, so that a checkpoint from before the due step holds it
        self._context.training.progress.is_plateau_due = self.has_waiting_schedulers
        self._step_due("step", count, on_plateau=False)

    def after_validation(self) -> None:
        """Step the schedulers that count optimizer steps and monitor a metric, if they are due."""
        progress = self._context.training.progress
        if progress.is_plateau_due:
            progress.is_plateau_due = False
            self._step_due("step", progress.steps_completed, on_plateau=True)

    def after_batches(self) -> None:
        """Step the schedulers that count epochs and monitor no metric, after the last batch."""
        batch = self._context.batch
        # the last batch and the end of the epoch's batches both lead here
        if not batch.has_scheduled:
            batch.has_scheduled = True
            self._step_due("epoch", self._epoch, on_plateau=False)

    def after_epoch(self) -> None:
        """Step the schedulers that count epochs and monitor a metric, once it is complete."""
        self._step_due("epoch", self._epoch, on_plateau=True)

    def _step_due(self, interval: str, count: int, *, on_plateau: bool) -> None:
        """Step the schedulers of an interval, with or without a monitored metric."""
        for config in self._configs:
            if (
                config.interval == interval
                and config.reduce_on_plateau is on_plateau
                and count % config.frequency == 0
            ):
                self._step(config)

    def _step(self, config: LRSchedulerConfig) -> None:
        """Step one scheduler, with the value of its metric if it monitors one."""
        groups = self._context.training.optimization.num_groups
        if groups != self._groups:  # a hook has added some inside the epoch
            self._groups = groups
            fit_schedulers_to_groups(self._configs)
        metric: Any = None
        if config.reduce_on_plateau:
            metrics = self._context.training.metrics.callback_metrics
            name = str(config.monitor)
            if name not in metrics:
                message = (
                    f"the scheduler {type(config.scheduler).__qualname__} monitors {name!r}, which "
                    f"was not logged: logged are {', '.join(sorted(metrics)) or 'no metrics'}."
                    f"{did_you_mean(name, metrics)} Log it with self.log({name!r}, ...), or set "
                    "'strict': False to leave the scheduler out where it is missing."
                )
                if config.strict:
                    raise MetricError(message)
                warn(message, TrainerHooksWarning)
                return
            metric = metrics[name]
            if self._context.processes.is_distributed and config.interval == "step":
                # step values differ by rank; schedulers must not
                metric = self._context.processes.broadcast(metric)
        try:
            with self._closed_metrics():
                self._context.module.lr_scheduler_step(config.scheduler, metric)
        except StopTraining as request:
            self._context.stop_by(request)
