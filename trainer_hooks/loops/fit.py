"""The training loop: epochs, batches, validation in between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.clock import EpochStage
from trainer_hooks.context import RunningStage
from trainer_hooks.errors import StopTraining, add_note
from trainer_hooks.loops.batch_end import BatchEnd
from trainer_hooks.loops.duration import counter_of, duration_of
from trainer_hooks.loops.handover import hand_over
from trainer_hooks.loops.iterations import Iterations
from trainer_hooks.loops.leaving import Leaving
from trainer_hooks.loops.requests import CheckpointRequests
from trainer_hooks.loops.schedule import SchedulerStepper
from trainer_hooks.loops.step_choice import make_step
from trainer_hooks.loops.taking import END, Taking
from trainer_hooks.loops.train_step import TrainStep
from trainer_hooks.loops.validation import FitValidation
from trainer_hooks.metrics import Scope

if TYPE_CHECKING:
    from trainer_hooks.context import RunContext
    from trainer_hooks.loops.agreement import Agreement
    from trainer_hooks.loops.duration import Duration

__all__ = ["FitLoop"]


class FitLoop:
    """Train a module until something says that it is enough.

    Args:
        context: the run; its loaders were found.
    """

    def __init__(self, context: RunContext) -> None:
        self.context = context
        self._agreement: Agreement | None = None
        self._step = make_step(context)
        self._schedulers = SchedulerStepper(context)
        self._requests = CheckpointRequests(context)
        self._iterations = Iterations(context, self._requests)
        self._validation = FitValidation(context, self._agree)
        self._measure = counter_of(context.module)
        self._duration: Duration | Agreement | None = duration_of(context)
        if context.processes.is_several:
            from trainer_hooks.loops.agreement import Agreement

            self._duration = self._agreement = Agreement(
                context, duration_of(context), self._step.sync
            )
        self._end = BatchEnd(
            context, self._step, self._schedulers, self._validation, self._requests, self._agreement
        )
        self._taking = Taking(context, self._end, self._duration, self._agreement)

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
                if not context.resumed and not context.has_to_stop:
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
                if self._agreement is not None:
                    self._agreement.refuse_alone(request)
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
        if self.context.data.training.num_batches == 0:
            return "the limit on training batches leaves none"
        if self.context.has_to_stop:
            return self.context.why_stopping
        return ""

    def _epoch(self) -> None:
        """Train the batches of one epoch, or what is left of it.

        ::

            for each batch:
                on_before_dataloader, take it, on_after_dataloader       (Taking)
                on_train_batch_start
                forward, backward, and at the end of a window the step   (TrainStep)
                schedulers that count steps
                on_train_batch_end
                loggers, a validation that is due or was asked for       (BatchEnd)
                on_batch_checkpoint, a checkpoint that was asked for
        """
        context, step, measure = self.context, self._step, self._measure
        trainer, module, hooks = context.trainer, context.module, context.hooks
        progress, metrics = context.training.progress, context.training.metrics
        accumulate = context.plan.accumulate_grad_batches
        step.set_window(accumulate)
        steps_schedulers = self._schedulers.has_step_schedulers
        outputs: dict[str, Any] = {}
        self._taking.open()
        metrics.enter(Scope.TRAIN_BATCH)
        while (batch := self._taking.take()) is not END:
            if batch is None:
                self._end.pass_over_none()
                continue
            metrics.batch = batch
            # before anybody may change what is in it
            samples, tokens = measure(batch)
            batch_idx = progress.batches_in_epoch
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
            self._end.finish(closes_window, outputs)
        self._end.losses.look(outputs)

    def _begin_epoch(self) -> None:
        context = self.context
        trainer, module, hooks = context.trainer, context.module, context.hooks
        self._iterations.before_epoch()
        context.training.progress.begin_epoch()
        context.training.timekeeper.begin_epoch(context.training.progress)
        context.batch.is_last = context.batch.has_scheduled = False
        stream = context.data.training
        if context.data.renew is not None:
            context.data.renew()
        context.training.metrics.enter(Scope.TRAIN_EPOCH)
        hooks.on_epoch_start(trainer, module)
        hooks.on_train_epoch_start(trainer, module)
        if stream is not context.data.training:  # the loaders were made anew since
            self._validation.lay_out()
            self._validation.start()

    def _is_complete(self) -> bool:
        """Return whether all batches of the epoch are done; else something ended it."""
        context = self.context
        return context.training.progress.batches_in_epoch >= context.data.training.num_batches

    def _close_batches(self) -> None:
        """End the epoch's batches."""
        context = self.context
        is_complete = self._is_complete()
        if is_complete and isinstance(self._step, TrainStep):
            self._step.missing.require_one(context.training.progress.batches_in_epoch)
        self._taking.close(is_complete=is_complete)
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
            self._end.finish(progress.batches_in_window == 0, {})
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
