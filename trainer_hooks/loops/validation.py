"""Validation inside fit: the sanity check before training, and the run of what is due."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks._log import warn
from trainer_hooks.context import RunningStage
from trainer_hooks.errors import TrainerHooksWarning
from trainer_hooks.loops.evaluation import EvaluationLoop
from trainer_hooks.loops.steps import has_evaluation
from trainer_hooks.loops.validation_schedule import ValidationSchedule

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_hooks.context import RunContext
    from trainer_hooks.loops.evaluators import EvaluatorSchedule

__all__ = ["FitValidation"]


class FitValidation:
    """Validate inside fit: before training, after batches, and at the end of epochs.

    Args:
        context: the run.
        agree: called at the end of each; the fit's own agreement of several processes.

    Attributes:
        is_inside: whether one may be due inside an epoch.

    Raises:
        OptionError: `val_check_interval` does not fit the number of batches.
        ModuleError: the validation step takes other arguments.
    """

    def __init__(self, context: RunContext, agree: Callable[[], None]) -> None:
        self._context = context
        self._agree = agree
        self._is_told = False
        self.lay_out()

    def lay_out(self) -> None:
        """Find out when one is due, by the training batches that an epoch has now."""
        context, num_batches = self._context, self._context.data.training.num_batches
        schedule = self._schedule = ValidationSchedule(context, num_batches)
        self._evaluators: EvaluatorSchedule | None = None
        if any(e.when is not None for e in context.data.evaluation["validate"].evaluators):
            from trainer_hooks.loops.evaluators import EvaluatorSchedule

            self._evaluators = EvaluatorSchedule(context, schedule)
        self._goes_by_clock = context.processes.is_several and (
            self._evaluators is not None or schedule.goes_by_clock
        )
        self.is_inside = schedule.is_inside or self._evaluators is not None
        if schedule.is_on:
            EvaluationLoop(context, "validate")  # a step that cannot be called is told at once

    def check_sanity(self) -> None:
        """Run a few validation batches, so that a fault in them shows before hours of training.

        It leaves no trace: random numbers, generators, modes and metrics are put back.
        """
        context, data = self._context, self._context.data
        trainer, module, hooks = context.trainer, context.module, context.hooks
        limit = context.plan.num_sanity_val_steps
        if limit == 0 or not data.evaluation["validate"] or not data.training.num_batches:
            return
        context.state.stage = RunningStage.SANITY_CHECKING
        with context.parts.put_back(), context.training.metrics.isolated():
            hooks.on_sanity_check_start(trainer, module)
            EvaluationLoop(context, "validate").run(None if limit < 0 else limit)
            hooks.on_sanity_check_end(trainer, module)

    def start(self) -> None:
        """Begin to ask what is due, or go on where the checkpoint was saved."""
        self._schedule.start()
        if self._evaluators is not None:
            self._evaluators.start()

    def after_batch(self) -> None:
        """Validate after the batch just done, if that is due inside the epoch."""
        if self._evaluators is not None:
            chosen = self._settled(self._evaluators.due_on_batch())
            if chosen:
                self.run(chosen)
        elif self._settled(self._schedule.is_due_on_batch()):
            self.run()

    def after_batches(self, *, is_complete: bool) -> None:
        """Validate at the end of the epoch's batches, if that is due.

        Args:
            is_complete: whether all batches of the epoch were done; else something ended it.
        """
        if self._evaluators is not None:
            chosen = self._settled(self._evaluators.due_after_batches(is_complete=is_complete))
            if chosen:
                self.run(chosen)
        elif self._settled(self._schedule.is_due_after_batches(is_complete=is_complete)):
            self.run()
        # of one that was not due, the weights were validated already
        self._context.training.progress.is_validation_requested = False

    def _settled(self, due: Any) -> Any:
        """Return what rank 0 finds due, where processes may count otherwise."""
        if self._goes_by_clock:
            return self._context.processes.broadcast(due)
        return due

    def run(self, chosen: list[int] | None = None) -> None:
        """Validate once, or say why what was asked for cannot be done.

        Args:
            chosen: the numbers of the loaders to run; all unless given.
        """
        context, progress = self._context, self._context.training.progress
        trainer, module, hooks = context.trainer, context.module, context.hooks
        if self._schedule.is_on:
            data = context.data.evaluation["validate"]
            data.chosen = chosen
            # one that is broken off is run again on a resume, from where it began
            context.validation.aside = context.parts.put_aside()
            context.state.stage = RunningStage.VALIDATING
            context.training.timekeeper.stopwatch.start_evaluating()
            if context.processes.is_several:
                context.processes.share_buffers(module)
            if progress.batches_in_window == 0:
                module.on_validation_model_zero_grad()
            hooks.on_validation_run_start(trainer, module)
            EvaluationLoop(context, "validate").run(context.validation.limit)
            context.validation.limit = None
            hooks.on_validation_run_end(trainer, module)
            self._agree()
            context.training.timekeeper.end_validation(progress)
            context.state.stage = RunningStage.TRAINING
            if chosen is None or self._are_common_in(chosen):
                progress.validated_at = progress.batches_completed
            self._schedule.note()
            if self._evaluators is not None:
                self._evaluators.note(chosen or [])
            data.chosen = None
            context.validation.aside = {}
        elif not self._is_told:
            self._is_told = True
            warn(
                f"trainer.request_validation() was called, but {_obstacle(context)}.",
                TrainerHooksWarning,
            )
        progress.is_validation_requested = False

    def _are_common_in(self, chosen: list[int]) -> bool:
        """Return whether the loaders that go by the trainer's interval are among those chosen."""
        return self._evaluators is None or self._evaluators.are_common_in(chosen)


def _nothing() -> None:
    """Do nothing, where there is nobody to agree with."""


def _obstacle(context: RunContext) -> str:
    """Return why there is nothing to validate, and what to do about it."""
    data, name = context.data.evaluation["validate"], type(context.module).__qualname__
    if not has_evaluation(context.module, "validate"):
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
