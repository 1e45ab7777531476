"""Run validation inside fit: the sanity check, and each validation when it is due."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks._log import warn
from trainer_hooks.context.run_state import RunningStage
from trainer_hooks.errors import TrainerHooksWarning
from trainer_hooks.loops.evaluation import EvaluationLoop
from trainer_hooks.loops.module_steps import has_validation_step
from trainer_hooks.loops.validation_schedule import ValidationSchedule

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_hooks.context.context import RunContext
    from trainer_hooks.loops.evaluator_schedule import EvaluatorSchedule


class FitValidation:
    """Validate inside fit: before training, after batches, and at the end of epochs.

    Args:
        context: the run context.
        reach_consensus: called after each validation; shares requests between ranks.

    Attributes:
        is_inside: whether a validation may be due inside an epoch.

    Raises:
        OptionError: `val_check_interval` does not fit the number of batches.
        ModuleError: the signature of the validation step is wrong.
    """

    def __init__(self, context: RunContext, reach_consensus: Callable[[], None]) -> None:
        self._context = context
        self._reach_consensus = reach_consensus
        self._has_warned = False
        self.build_schedule()

    def build_schedule(self) -> None:
        """Compute when validations are due, from the number of training batches of an epoch."""
        context, num_batches = self._context, self._context.data.train_stream.num_batches
        schedule = self._schedule = ValidationSchedule(context, num_batches)
        self._evaluators: EvaluatorSchedule | None = None
        if any(e.when is not None for e in context.data.evaluation["validate"].evaluators):
            from trainer_hooks.loops.evaluator_schedule import EvaluatorSchedule

            self._evaluators = EvaluatorSchedule(context, schedule)
        # each rank measures time and calls functions of the clock for itself
        self._ranks_may_differ = context.processes.is_distributed and (
            self._evaluators is not None or schedule.depends_on_rank
        )
        self.is_inside = schedule.is_inside or self._evaluators is not None
        if schedule.is_on:
            self._check_step()

    def _check_step(self) -> None:
        """Check the signature of the validation step, so that an error comes before training."""
        EvaluationLoop(self._context, "validate")

    def check_sanity(self) -> None:
        """Run a few validation batches, so that a fault shows before hours of training.

        All state is restored afterwards: random state, generators, modes and metrics.
        """
        context, data = self._context, self._context.data
        trainer, module, hooks = context.trainer, context.module, context.hooks
        limit = context.plan.num_sanity_val_steps
        if limit == 0 or not data.evaluation["validate"] or not data.train_stream.num_batches:
            return
        context.state.stage = RunningStage.SANITY_CHECKING
        # the sanity check must leave no trace: with or without it the training gives the same
        # weights. As in Lightning, readers see the values of a single loader, and none of several
        has_several = len(data.evaluation["validate"].loaders) > 1
        isolated = context.training.metrics.isolated(hides_loaders=has_several)
        with context.state_registry.rolled_back(), isolated:
            hooks.on_sanity_check_start(trainer, module)
            EvaluationLoop(context, "validate").run(None if limit < 0 else limit)
            hooks.on_sanity_check_end(trainer, module)

    def start(self) -> None:
        """Start counting intervals, or continue from the state of a checkpoint."""
        self._schedule.start()
        if self._evaluators is not None:
            self._evaluators.start()

    def after_batch(self) -> None:
        """Validate after the batch that just ended, if that is due inside the epoch."""
        self._run_if_due((self._evaluators or self._schedule).due_on_batch())

    def after_batches(self, *, is_complete: bool) -> None:
        """Validate at the end of the epoch's batches, if that is due.

        Args:
            is_complete: whether all batches of the epoch are done, so that nothing ended it early.
        """
        schedule, context = self._evaluators or self._schedule, self._context
        is_stopped = context.local_requests.stop_requests > 0
        if context.plan.validates_after_stop or not is_stopped:
            self._run_if_due(schedule.due_after_batches(is_complete=is_complete))
        # a request that is still set was not due: these weights were validated already
        self._context.training.progress.is_validation_requested = False

    def _run_if_due(self, due: bool | list[int]) -> None:
        """Run a validation of all loaders (True), of those with these indices, or none."""
        # a validation is full of collectives, so one rank decides for all
        if self._ranks_may_differ:
            due = self._context.processes.broadcast(due)
        if due:
            self.run(due if isinstance(due, list) else None)

    def run(self, chosen: list[int] | None = None) -> None:
        """Run one validation, or warn why a requested one is impossible.

        Args:
            chosen: indices of the loaders to run; all by default.
        """
        context = self._context
        if self._schedule.is_on:
            self.begin(chosen)
            # a callback may have set the limit in the start hook, for this validation alone
            EvaluationLoop(context, "validate").run(context.validation.limit)
            self.end()
        elif not self._has_warned:
            self._has_warned = True
            warn(
                f"trainer.request_validation() was called, but {_why_nothing_validates(context)}.",
                TrainerHooksWarning,
            )
        context.training.progress.is_validation_requested = False

    def begin(self, chosen: list[int] | None = None) -> None:
        """Enter a validation: keep the states to which a resume returns, and call its start hook.

        Args:
            chosen: indices of the loaders to run; all by default.
        """
        context, progress = self._context, self._context.training.progress
        trainer, module, hooks = context.trainer, context.module, context.hooks
        context.data.evaluation["validate"].chosen = chosen
        # an interrupted validation runs again on a resume, from the state at its start
        context.validation.snapshot = context.state_registry.snapshot()
        context.state.stage = RunningStage.VALIDATING
        context.training.timekeeper.stopwatch.start_evaluating()
        # each rank's forwards have changed its own buffers: all must evaluate the same model
        if context.processes.is_distributed:
            context.processes.broadcast_module_buffers(module)
        # inside a window the gradients are accumulated training state, which must survive
        if progress.batches_in_window == 0:
            module.on_validation_model_zero_grad()
        hooks.on_validation_run_start(trainer, module)

    def end(self) -> None:
        """Leave a validation, and record that it was done."""
        context, progress = self._context, self._context.training.progress
        data = context.data.evaluation["validate"]
        chosen = data.chosen
        context.validation.limit = None
        context.hooks.on_validation_run_end(context.trainer, context.module)
        self._reach_consensus()
        context.training.timekeeper.end_validation(progress)
        context.state.stage = RunningStage.TRAINING
        if chosen is None or (
            self._evaluators is None or self._evaluators.includes_default_loaders(chosen)
        ):
            progress.validated_at = progress.batches_completed
        self._schedule.mark_done()
        if self._evaluators is not None:
            self._evaluators.mark_done(chosen or [])
        data.chosen = None
        context.validation.snapshot = {}


def _why_nothing_validates(context: RunContext) -> str:
    """Return why there is nothing to validate, and how to change that."""
    data, name = context.data.evaluation["validate"], type(context.module).__qualname__
    if not has_validation_step(context.module):
        return f"{name} has no validation_step, so nothing is validated: define it"
    if not data.loaders and context.plan.limit_val_batches:
        return (
            "fit was given no validation data, so nothing is validated: pass val_dataloaders=, or "
            "define val_dataloader()"
        )
    return (
        "the validation loaders give no batch, so nothing is validated: check their data sets' "
        "length, limit_val_batches and overfit_batches"
    )
