"""What follows a training batch: metrics, a validation that is due, a checkpoint, or the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks._log import warn
from trainer_hooks.context import NEVER
from trainer_hooks.errors import TrainerHooksWarning
from trainer_hooks.loops.handover import hand_over
from trainer_hooks.loops.loss_watch import LossWatch
from trainer_hooks.loops.train_step import TrainStep

if TYPE_CHECKING:
    from trainer_hooks.context import RunContext
    from trainer_hooks.loops.agreement import Agreement
    from trainer_hooks.loops.manual_step import ManualStep
    from trainer_hooks.loops.requests import CheckpointRequests
    from trainer_hooks.loops.schedule import SchedulerStepper
    from trainer_hooks.loops.validation import FitValidation

__all__ = ["BatchEnd"]


class BatchEnd:
    """Do what is due after a training batch, and close the window that an epoch's end leaves open.

    Args:
        context: the run.
        step: what trains a batch.
        schedulers: steps the schedulers.
        validation: validates inside the epoch.
        requests: saves what was asked for.
        agreement: what several processes agree with, or None.

    Attributes:
        losses: looks at losses whose values were copied to the host.
    """

    def __init__(
        self,
        context: RunContext,
        step: TrainStep | ManualStep,
        schedulers: SchedulerStepper,
        validation: FitValidation,
        requests: CheckpointRequests,
        agreement: Agreement | None,
    ) -> None:
        self._context = context
        self._step = step
        self._schedulers = schedulers
        self._validation = validation
        self._requests = requests
        self._agreement = agreement
        self._is_told_of_none = False
        self.losses = LossWatch(context)

    def pass_over_none(self) -> None:
        """Count a batch that the loader gave None for: its place in the window stays empty."""
        context, progress = self._context, self._context.training.progress
        if not self._is_told_of_none:
            self._is_told_of_none = True
            warn(
                f"the training loader {context.data.training.loader!r} gave None for batch "
                f"{progress.batches_in_epoch} of epoch {progress.epochs_completed}: such a batch "
                "is skipped, without a hook. Let collate_fn return what is left of the samples, "
                "unless that is meant.",
                TrainerHooksWarning,
            )
        accumulate = context.plan.accumulate_grad_batches
        closes_window = context.batch.is_last or progress.batches_in_window + 1 >= accumulate
        self._step.skip(progress.batches_in_epoch, closes_window)
        progress.count_batch(closes_window, 0, 0)
        context.batch.is_taken = False
        if closes_window:
            self._schedulers.after_step()
        self.finish(closes_window, {})

    def finish(self, closes_window: bool, outputs: dict[str, Any]) -> None:
        """Hand metrics to the loggers, validate if that is due, and let savers save."""
        context, progress = self._context, self._context.training.progress
        if closes_window and self._agreement is not None:
            self._agreement.after_window()
        if closes_window and (
            progress.batches_stepped % context.plan.log_every_n_steps == 0
            or (context.asked.is_stopping and context.plan.log_every_n_steps < NEVER)
        ):
            hand_over(context, *context.training.metrics.step_metrics())
            if context.trainer.loggers:  # for which values were copied to the host just now
                self.losses.look(outputs)
        # gradients that the processes have not yet shared are of no use: their window is ended
        if progress.is_epoch_end_requested and (closes_window or self._agreement is None):
            self._leave_rest()
            return
        if self._validation.is_inside or progress.is_validation_requested:
            self._validation.after_batch()
        progress.is_batch_open = False
        if context.background.has_news:
            context.background.tell_news()
        context.hooks.on_batch_checkpoint(context.trainer, context.module)
        if progress.is_checkpoint_requested:
            self._requests.save()

    def _leave_rest(self) -> None:
        """End the epoch's batches here, as was asked for, and step with what is open.

        Nothing is saved until they are closed: a resume would come back to the middle of them.
        """
        context, progress = self._context, self._context.training.progress
        progress.is_epoch_end_requested = progress.is_batch_open = False
        context.batch.is_last = True
        context.data.training.cut(progress.batches_in_epoch)
        self.step_with_rest()

    def step_with_rest(self) -> None:
        """Step with the batches of a window that the epoch's end leaves open."""
        progress = self._context.training.progress
        if progress.batches_in_window:
            if isinstance(self._step, TrainStep) and progress.has_gradients:
                self._step.update()
            progress.close_window()
            self._schedulers.after_step()
