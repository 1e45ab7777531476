"""The training loop: epochs, batches, validation in between."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from trainer_hooks._log import warn
from trainer_hooks.clock import EpochStage
from trainer_hooks.context import NEVER, RunningStage
from trainer_hooks.data import shortage
from trainer_hooks.errors import DataError, StopTraining, TrainerHooksWarning, UsageError, add_note
from trainer_hooks.hooks import call_noting
from trainer_hooks.loops.duration import counter_of, duration_of
from trainer_hooks.loops.handover import hand_over
from trainer_hooks.loops.iterations import Iterations
from trainer_hooks.loops.leaving import Leaving
from trainer_hooks.loops.loss_watch import LossWatch
from trainer_hooks.loops.requests import CheckpointRequests
from trainer_hooks.loops.schedule import SchedulerStepper
from trainer_hooks.loops.step_choice import make_step
from trainer_hooks.loops.train_step import TrainStep
from trainer_hooks.loops.validation import FitValidation
from trainer_hooks.metrics import Scope

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainer_hooks.context import RunContext
    from trainer_hooks.data import TrainStream
    from trainer_hooks.loops.agreement import Agreement
    from trainer_hooks.loops.duration import Duration

__all__ = ["FitLoop"]


class FitLoop:
    """Train a module until something says that it is enough.

    Args:
        context: the run.
        stream: its training batches.
    """

    def __init__(self, context: RunContext, stream: TrainStream) -> None:
        self.context = context
        self.stream = stream
        self._step = make_step(context)
        self._schedulers = SchedulerStepper(context)
        self._requests = CheckpointRequests(context)
        self._iterations = Iterations(context, self._requests)
        self._validation = FitValidation(context, stream.num_batches)
        self._losses = LossWatch(context)
        self._measure = counter_of(context.module)
        self._is_told_of_none = False
        self._duration: Duration | Agreement | None = duration_of(context)
        self._agreement: Agreement | None = None
        self._is_timed = False
        self._validation.agree = self._agree
        if context.processes.is_several:
            from trainer_hooks.loops.agreement import Agreement

            self._duration = self._agreement = Agreement(
                context, duration_of(context), self._step.sync
            )

    def run(self) -> None:
        """Train.

        ::

            sanity check
            on_train_start
            while there is more to do:
                on_epoch_start, on_train_epoch_start                  (_begin_epoch)
                batches, with validations that are due on one         (_epoch)
                on_train_batches_end                                  (_close_batches)
                the epoch's own validation                            (_validate_epoch)
                on_train_epoch_end, on_epoch_end, on_epoch_checkpoint (_end_epoch)
            on_train_end

        Cycles of epochs stand around this (`Iterations`). A resumed run enters the loop where the
        checkpoint was saved; one that a signal ends saves, and leaves it there (`Leaving`).
        """
        context, progress = self.context, self.context.training.progress
        trainer, module, hooks = context.trainer, context.module, context.hooks
        leaving = Leaving(context)
        with leaving:
            try:
                if not context.resumed and not context.has_to_stop and self.stream.num_batches:
                    self._validation.check_sanity()
                context.state.stage = RunningStage.TRAINING
                context.training.timekeeper.stopwatch.start()
                context.training.metrics.enter(Scope.TRAIN_EPOCH)
                if progress.stage is EpochStage.ENDED:  # resumed after its last slot
                    progress.complete_epoch()
                hooks.on_train_start(trainer, module)
                context.training.metrics.enter(Scope.CLOSED)
                self._agree()
                self._validation.start()
                self._resume()
                if progress.stage is EpochStage.BETWEEN:
                    self._iterations.after_epoch()
                while progress.stage is not EpochStage.BETWEEN or not self.reason_to_end():
                    if progress.stage is EpochStage.BETWEEN:
                        self._begin_epoch()
                    if progress.stage is EpochStage.BATCHES:
                        self._epoch()
                        self._close_batches()
                    if progress.stage is EpochStage.VALIDATING:
                        self._validate_epoch()
                    if progress.stage is EpochStage.CLOSING:
                        self._end_epoch()
                    self._complete_epoch()
                context.asked.heed_signal()
            except StopTraining as request:
                self._refuse_alone(request)
                self._close_by(request)
            self._iterations.close()
        hooks.on_train_end(trainer, module)
        context.training.timekeeper.stopwatch.stop()
        leaving.after_training()

    def reason_to_end(self) -> str:
        """Return why there is nothing more to train, or an empty string."""
        plan, progress = self.context.plan, self.context.training.progress
        # an epoch that is over but for being counted is one
        epochs = progress.epochs_completed + (progress.stage is EpochStage.ENDED)
        if 0 <= plan.max_steps <= progress.steps_completed:
            return f"max_steps={plan.max_steps} optimizer steps are done"
        if 0 <= plan.max_epochs <= epochs:
            return f"max_epochs={plan.max_epochs} epochs are done"
        if self._duration is not None and self._duration.is_over():
            return f"max_duration={str(plan.max_duration)!r} is over"
        if self.stream.num_batches == 0:
            return "the limit on training batches leaves none"
        if self.context.has_to_stop:
            return self.context.why_stopping
        return ""

    def _epoch(self) -> None:  # noqa: C901 - every call would cost each batch
        """Train the batches of one epoch, or what is left of it.

        ::

            for each batch:
                on_before_dataloader, take it, on_after_dataloader
                on_train_batch_start
                forward, backward, and at the end of a window the step   (TrainStep)
                schedulers that count steps
                on_train_batch_end
                loggers, a validation that is due or was asked for       (_finish_batch)
                on_batch_checkpoint, a checkpoint that was asked for
        """
        context, stream, step = self.context, self.stream, self._step
        trainer, module, hooks = context.trainer, context.module, context.hooks
        progress, metrics, transfer = (
            context.training.progress,
            context.training.metrics,
            context.transfer,
        )
        accumulate = context.plan.accumulate_grad_batches
        step.set_window(accumulate)
        max_steps = context.plan.max_steps if context.plan.max_steps >= 0 else math.inf
        steps_schedulers = self._schedulers.has_step_schedulers
        measure, duration = self._measure, self._duration
        iterator = self._batches()
        metrics.enter(Scope.TRAIN_BATCH)
        outputs: dict[str, Any] = {}
        while progress.batches_in_epoch < stream.num_batches:
            if (
                progress.steps_completed >= max_steps
                or (context.asked.is_stopping and context.has_to_stop)
                or (duration is not None and duration.is_over())
            ):
                break
            if context.asked.pending_signal:
                context.asked.heed_signal()
            hooks.on_before_dataloader(trainer, module)
            context.batch.is_taken = True
            try:
                batch = next(iterator)
            except StopIteration:
                hooks.on_after_dataloader(trainer, module, None)
                self._end_early()
                break
            except StopTraining as request:
                hooks.on_after_dataloader(trainer, module, None)
                self._refuse_alone(request)
                context.stop_by(request)
                break
            except BaseException as error:
                call_noting(error, hooks.on_after_dataloader, trainer, module, None)
                raise
            stream.last.keep(batch)
            hooks.on_after_dataloader(trainer, module, batch)
            if batch is None:
                self._pass_over_none()
                continue
            if transfer.is_needed:
                batch = transfer(batch)
            metrics.batch = batch
            # before anybody may change what is in it
            samples, tokens = measure(batch)
            batch_idx = progress.batches_in_epoch
            context.batch.is_last = batch_idx + 1 >= stream.num_batches
            if self._agreement is not None and self._agreement.is_last(context.batch.is_last):
                context.batch.is_last, stream.num_batches = True, batch_idx + 1
            closes_window = context.batch.is_last or progress.batches_in_window + 1 >= accumulate
            try:
                hooks.on_train_batch_start(trainer, module, batch, batch_idx)
                if context.asked.skips_batch:
                    context.asked.skips_batch = False
                    outputs = step.skip(batch_idx, closes_window)
                else:
                    outputs = step(batch, batch_idx, closes_window)
            except StopTraining as request:
                context.stop_by(request)
                if self._agreement is None:
                    outputs, closes_window = {}, False
                else:  # the others are not cut off, and need this process for their step
                    outputs = step.skip(batch_idx, closes_window)
            except Exception as error:
                add_note(error, f"in epoch {progress.epochs_completed}, training batch {batch_idx}")
                raise
            progress.count_batch(closes_window, samples, tokens)
            context.batch.is_taken = False
            if steps_schedulers and closes_window:
                self._schedulers.after_step()
            if context.batch.is_last:
                self._schedulers.after_batches()
            hooks.on_train_batch_end(trainer, module, outputs, batch, batch_idx)
            self._finish_batch(closes_window, outputs)
        self._losses.look(outputs)

    def _batches(self) -> Iterator[Any]:
        """Return the epoch's batches; the first of a fit may be timed, if there are few workers."""
        context, loader = self.context, self.stream.loader
        iterator = context.data.batches(context.training.progress.epochs_completed)
        workers = getattr(loader, "num_workers", None)
        if self._is_timed or workers is None:
            return iterator
        self._is_timed = True
        from trainer_hooks.loops.loading_watch import usable_cpus, watched

        if workers + 1 >= usable_cpus():
            return iterator
        return watched(iterator, loader, context.trainer.device)

    def _pass_over_none(self) -> None:
        """Count a batch that the loader gave None for: its place in the window stays empty."""
        context, progress = self.context, self.context.training.progress
        if not self._is_told_of_none:
            self._is_told_of_none = True
            warn(
                f"the training loader {self.stream.loader!r} gave None for batch "
                f"{progress.batches_in_epoch} of epoch {progress.epochs_completed}: such a batch "
                "is skipped, without a hook. Let collate_fn return what is left of the samples, "
                "unless that is meant.",
                TrainerHooksWarning,
            )
        batch_idx = progress.batches_in_epoch
        is_last = batch_idx + 1 >= self.stream.num_batches
        if self._agreement is not None and self._agreement.is_last(is_last):
            is_last, self.stream.num_batches = True, batch_idx + 1
        context.batch.is_last = is_last
        accumulate = context.plan.accumulate_grad_batches
        closes_window = is_last or progress.batches_in_window + 1 >= accumulate
        self._step.skip(batch_idx, closes_window)
        progress.count_batch(closes_window, 0, 0)
        context.batch.is_taken = False
        if closes_window:
            self._schedulers.after_step()
        self._finish_batch(closes_window, {})

    def _finish_batch(self, closes_window: bool, outputs: dict[str, Any]) -> None:
        """Hand metrics to the loggers, validate if that is due, and let savers save."""
        context, progress = self.context, self.context.training.progress
        if closes_window and self._agreement is not None:
            self._agreement.after_window()
        if closes_window and (
            progress.batches_stepped % context.plan.log_every_n_steps == 0
            or (context.asked.is_stopping and context.plan.log_every_n_steps < NEVER)
        ):
            hand_over(context, *context.training.metrics.step_metrics())
            if context.trainer.loggers:  # for which values were copied to the host just now
                self._losses.look(outputs)
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

    def _begin_epoch(self) -> None:
        context = self.context
        trainer, module, hooks = context.trainer, context.module, context.hooks
        self._iterations.before_epoch()
        context.training.progress.begin_epoch()
        context.training.timekeeper.begin_epoch(context.training.progress)
        context.batch.is_last = context.batch.has_scheduled = False
        if context.data.renew is not None:
            context.data.renew()
        context.training.metrics.enter(Scope.TRAIN_EPOCH)
        hooks.on_epoch_start(trainer, module)
        hooks.on_train_epoch_start(trainer, module)
        if context.data.stream is not None and context.data.stream is not self.stream:
            # the loaders were made anew since
            self.stream = context.data.stream
            self._validation = FitValidation(context, self.stream.num_batches)
            self._validation.agree = self._agree
            self._validation.start()

    def _leave_rest(self) -> None:
        """End the epoch's batches here, as was asked for, and step with what is open.

        Nothing is saved until they are closed: a resume would come back to the middle of them.
        """
        context, progress = self.context, self.context.training.progress
        progress.is_epoch_end_requested = progress.is_batch_open = False
        context.batch.is_last = True
        self.stream.cut(progress.batches_in_epoch)
        self._step_with_rest()

    def _end_early(self) -> None:
        """Note that the loader gave fewer batches than it said, and step with what is open.

        Raises:
            DataError: of several processes this one has fewer batches than it said.
        """
        progress, stream = self.context.training.progress, self.stream
        if self._agreement is not None:
            raise DataError(
                f"{shortage(stream.loader, 'training', progress.batches_in_epoch)} The other "
                "processes wait for this one."
            )
        stream.warn_of_shortage(progress.batches_in_epoch)
        stream.num_batches = progress.batches_in_epoch
        self.context.batch.is_last = True
        self._step_with_rest()

    def _step_with_rest(self) -> None:
        """Step with the batches of a window that the epoch's end leaves open."""
        progress = self.context.training.progress
        if progress.batches_in_window:
            if isinstance(self._step, TrainStep) and progress.has_gradients:
                self._step.update()
            progress.close_window()
            self._schedulers.after_step()

    def _is_complete(self) -> bool:
        """Return whether all batches of the epoch are done; else something ended it."""
        return self.context.training.progress.batches_in_epoch >= self.stream.num_batches

    def _close_batches(self) -> None:
        """End the epoch's batches."""
        context = self.context
        is_complete = self._is_complete()
        if is_complete and isinstance(self._step, TrainStep):
            self._step.missing.require_one(context.training.progress.batches_in_epoch)
        self.stream.close(is_complete=is_complete)
        context.batch.is_taken = False
        context.training.progress.abandon_window()
        if is_complete:
            self._schedulers.after_batches()
        context.training.metrics.enter(Scope.TRAIN_EPOCH)
        context.training.progress.stage = EpochStage.VALIDATING
        context.hooks.on_train_batches_end(context.trainer, context.module)

    def _validate_epoch(self) -> None:
        """Validate at the end of the epoch's batches, if that is due."""
        self._validation.after_batches(is_complete=self._is_complete())
        self.context.training.progress.stage = EpochStage.CLOSING

    def _end_epoch(self) -> None:
        context = self.context
        trainer, module, hooks = context.trainer, context.module, context.hooks
        context.training.metrics.enter(Scope.TRAIN_EPOCH)
        context.training.metrics.refresh(Scope.TRAIN_BATCH, Scope.TRAIN_EPOCH)
        hooks.on_train_epoch_end(trainer, module)
        if self._agreement is not None:  # schedulers may watch what was logged just now
            context.training.metrics.refresh(Scope.TRAIN_BATCH, Scope.TRAIN_EPOCH)
        self._schedulers.after_epoch()
        hooks.on_epoch_end(trainer, module)
        context.training.metrics.share(Scope.TRAIN_BATCH, Scope.TRAIN_EPOCH)
        hand_over(
            context, *context.training.metrics.close_epoch(Scope.TRAIN_BATCH, Scope.TRAIN_EPOCH)
        )
        context.training.metrics.enter(Scope.CLOSED)
        context.training.progress.stage = EpochStage.ENDED
        self._agree()
        if context.background.has_news:
            context.background.tell_news()
        hooks.on_epoch_checkpoint(trainer, module)
        if context.training.progress.is_checkpoint_requested:
            self._requests.save()

    def _complete_epoch(self) -> None:
        self.context.training.progress.complete_epoch()
        self._iterations.after_epoch()
        self._agree()

    def _refuse_alone(self, request: StopTraining) -> None:
        """Make sure that not one of several processes ends here, for which the others wait."""
        if self._agreement is not None:
            raise UsageError(
                "StopTraining was raised between the hooks of a run of several processes, where "
                "the others go on. Call trainer.stop() there, or raise it in a hook or a step."
            ) from request

    def _agree(self) -> None:
        """Let several processes know what any of them asks for."""
        if self._agreement is not None:
            self._agreement.reach()

    def _resume(self) -> None:
        """Come back to the place in the epoch at which the checkpoint was saved."""
        context, progress = self.context, self.context.training.progress
        checkpoint, context.resumed = context.resumed, {}
        if not checkpoint:
            return
        context.parts.load(checkpoint, places=True)
        if progress.stage is not EpochStage.BETWEEN:
            context.batch.is_last = self._is_complete()
        if progress.stage is EpochStage.BATCHES and progress.is_batch_open:
            context.training.metrics.enter(Scope.TRAIN_BATCH)
            self._finish_batch(progress.batches_in_window == 0, {})
        is_after_slot = progress.stage in (EpochStage.ENDED, EpochStage.BETWEEN)
        if is_after_slot and progress.is_checkpoint_requested:
            self._requests.save()  # the slot that was to serve it may have been the last one

    def _close_by(self, request: StopTraining) -> None:
        """End a run that was stopped by raising between two hooks: what is open is closed."""
        context, progress = self.context, self.context.training.progress
        context.stop_by(request)
        context.state.stage = RunningStage.TRAINING
        context.validation.aside = {}
        progress.is_batch_open = False
        if progress.stage is EpochStage.BATCHES:
            self._close_batches()
        if progress.stage is EpochStage.VALIDATING:
            self._validate_epoch()
        if progress.stage is EpochStage.CLOSING:
            self._end_epoch()
        if progress.stage is EpochStage.ENDED:
            self._complete_epoch()
