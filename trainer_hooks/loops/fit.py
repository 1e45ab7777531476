"""Train a module: the loop over epochs and batches, with validation in between.

`FitLoop.run` is the loop over epochs and `FitLoop._epoch` the loop over batches. Both read like the
pseudocode in their docstrings; the helpers below them hold the details.
"""

from __future__ import annotations

import signal
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from torch.nn.parameter import is_lazy

from trainer_hooks._log import warn
from trainer_hooks._names import ours
from trainer_hooks.clock.progress import EpochStage
from trainer_hooks.context.run_state import RunningStage
from trainer_hooks.data.data_hooks import defines
from trainer_hooks.errors import (
    ModuleError,
    OptimizationError,
    StopTraining,
    TerminationSignal,
    TrainerHooksWarning,
    add_note,
)
from trainer_hooks.hooks.spec import overrides
from trainer_hooks.loops.batch_end import BatchEnd, CheckpointRequests, UnfinishedSlot
from trainer_hooks.loops.batch_fetcher import END, BatchFetcher
from trainer_hooks.loops.duration import DurationLimit, batch_counter
from trainer_hooks.loops.learning_check import LearningCheck
from trainer_hooks.loops.metric_flush import flush_metrics
from trainer_hooks.loops.scheduler_stepper import SchedulerStepper
from trainer_hooks.loops.train_step import TrainStep
from trainer_hooks.loops.validation import FitValidation
from trainer_hooks.metrics.store import LogScope
from trainer_hooks.module.module import Module
from trainer_hooks.module.optimization import (
    fit_schedulers_to_groups,
    needs_closure,
    takes_closure,
)
from trainer_hooks.runtime.rng import isolated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainer_hooks.context.context import RunContext
    from trainer_hooks.loops.manual_step import ManualStep
    from trainer_hooks.loops.rank_consensus import RankConsensus


class FitLoop:
    """The training loop: run epochs until a limit is reached or a stop is requested.

    Args:
        context: the run context, with its loaders.
        is_advising: whether to advise on a fit that trains no weight.
    """

    def __init__(self, context: RunContext, *, is_advising: bool = True) -> None:
        self.context = context
        self._learning_check = LearningCheck(context) if is_advising else None
        self._consensus: RankConsensus | None = None
        self._step = self._make_step()
        self._assigned_step = vars(context.module).get("training_step")
        self._schedulers = SchedulerStepper(context)
        # one object for batches and cycles: its warning is given once in a fit
        self._requested_saves = CheckpointRequests(context)
        self._cycles = EpochCycles(context, self._requested_saves)
        self._validation = self._make_validation()
        self._sizes_of = batch_counter(context.module)
        limit = DurationLimit(context)
        self._duration: DurationLimit | RankConsensus = limit
        # with several ranks the consensus answers `is_over` for all.
        # Imported here, so that a run of one rank loads nothing of torch.distributed
        if context.processes.is_distributed:
            from trainer_hooks.loops.rank_consensus import RankConsensus

            self._duration = self._consensus = RankConsensus(context, limit, self._step.sync)
        self._batch_end = BatchEnd(
            context,
            self._step,
            self._schedulers,
            self._validation,
            self._requested_saves,
            self._consensus,
        )
        self._fetcher = BatchFetcher(
            context, self._batch_end, self._schedulers, self._duration, self._consensus
        )

    def run(self) -> None:
        """Train until a limit is reached, a stop is requested or a signal arrives.

        ::

            sanity check, unless resumed                              (_open_training)
            on_train_start
            positions and random states of a checkpoint               (_resume)
            while no limit is reached and no stop was requested:      (_enter_epoch)
                on_epoch_start, on_train_epoch_start                  (_begin_epoch)
                batches, with validations that are due on one         (_epoch)
                on_train_batches_end                                  (_close_batches)
                the epoch's own validation                            (FitValidation)
                on_train_epoch_end, on_epoch_end, on_epoch_checkpoint (_end_epoch)
            on_train_end                                              (_close_training)

        `EpochCycles` calls `on_iteration_start` and `on_iteration_end` around each group of
        `iteration_length` epochs. A resumed run enters the loop at the epoch stage of its
        checkpoint (`EpochStage`). A run that a signal ends saves a checkpoint and leaves the loop
        at that point (`ending_in_order`).
        """
        context, progress = self.context, self.context.training.progress
        with ending_in_order(context):
            with self._stopping_in_order():
                self._open_training()
            with self._stopping_in_order():
                while self._enter_epoch():
                    if progress.stage is EpochStage.BATCHES:
                        self._epoch()
                    self._finish_epoch()
                context.requests.raise_pending_signal()
            self._cycles.close()
        # outside of that, which would call `on_train_end` once more for a signal inside it
        self._close_training()

    def release(self) -> None:
        """Drop the batches of an epoch that an error ended, at the end of the run."""
        self._fetcher.release()

    def _open_training(self) -> None:
        """Run the sanity check and `on_train_start`, restore the states left to the loop."""
        context, progress = self.context, self.context.training.progress
        if not context.resumed and not self.reason_to_end():
            self._validation.check_sanity()
        context.state.stage = RunningStage.TRAINING
        context.training.timekeeper.stopwatch.start()
        context.training.metrics.enter(LogScope.TRAIN_EPOCH)
        # before the loop takes the checkpoint
        slot = UnfinishedSlot(context, self._requested_saves)
        # saved in `on_epoch_checkpoint`: the epoch is not counted yet
        if progress.stage is EpochStage.ENDED:
            progress.complete_epoch()
        context.continues_epoch = progress.stage is not EpochStage.BETWEEN
        context.hooks.on_train_start(context.trainer, context.module)
        # the values that it logs belong to the first epoch, as do those of the hooks at its start
        context.training.metrics.enter(LogScope.CLOSED, publishes=False)
        self._check_states()
        if self._learning_check is not None:
            self._learning_check.start()
        # `on_train_start` may have requested a stop on one rank alone.
        self._reach_consensus()
        self._validation.start()
        self._resume(slot)
        # a resume at the end of a cycle closes it; in any other fit none is open there
        if progress.stage is EpochStage.BETWEEN:
            self._cycles.after_epoch()
            self._reach_consensus()

    def _enter_epoch(self) -> bool:
        """Begin an epoch, or go on in that of a resumed run; return whether there is one.

        A resumed run enters at the epoch stage of its checkpoint, so each part of the epoch is
        guarded by its epoch stage; limits are checked between epochs only.
        """
        if self.context.training.progress.stage is EpochStage.BETWEEN:
            if self.reason_to_end():
                return False
            self._begin_epoch()
        return True

    def _close_training(self) -> None:
        """Call `on_train_end`, and act on a signal that came since the last batch."""
        context = self.context
        # each rank's last forward has changed its own buffers: the fit leaves the same module on
        # all, as a resume from its last checkpoint would
        context.processes.broadcast_module_buffers(context.module)
        context.hooks.on_train_end(context.trainer, context.module)
        context.training.timekeeper.stopwatch.stop()
        obey_late_signal(context)

    def _make_step(self) -> TrainStep | ManualStep:
        """Return the object that trains one batch, chosen by the module and the options."""
        context = self.context
        step = _single_rank_step(context)
        connect_step(step, context, is_manual=not context.module.automatic_optimization)
        return step

    def _make_validation(self) -> FitValidation:
        """Return the object that validates inside the fit."""
        return FitValidation(self.context, self._reach_consensus)

    def reason_to_end(self) -> str:
        """Return the reason why training is over, or an empty string if it goes on."""
        plan, progress = self.context.plan, self.context.training.progress
        # an ended epoch counts, although its counter is only advanced after the checkpoint hook
        epochs = progress.epochs_completed + (progress.stage is EpochStage.ENDED)
        if 0 <= plan.max_steps <= progress.steps_completed:
            return f"max_steps={plan.max_steps} optimizer steps are done"
        if 0 <= plan.max_epochs <= epochs:
            return f"max_epochs={plan.max_epochs} epochs are done"
        if self._duration.is_over():
            return f"max_duration={str(plan.max_duration)!r} is over"
        if self.context.data.train_stream.num_batches == 0:
            return "the limit on training batches leaves none"
        if self.context.should_stop:
            return self.context.stop_explanation
        return ""

    def _epoch(self) -> None:
        """Train the batches of one epoch, or those that a resumed run has left of it.

        ::

            for each batch:
                on_before_dataloader, fetch it, on_after_dataloader      (BatchFetcher)
                schedulers that count steps and monitor a metric
                on_train_batch_start
                forward, backward, and at the end of a window the step   (TrainStep)
                schedulers that count steps
                on_train_batch_end                                       (_end_batch)
                flush to loggers, a validation that is due or requested  (BatchEnd)
                on_batch_checkpoint, a checkpoint that was requested
        """
        context, step, measure = self.context, self._step, self._sizes_of
        trainer, module, hooks = context.trainer, context.module, context.hooks
        progress, metrics = context.training.progress, context.training.metrics
        # with several ranks this also wraps parameters that were replaced since the last epoch
        step.set_window(context.fix_window())
        outputs: dict[str, Any] = {}
        self._fetcher.open()
        metrics.enter(LogScope.TRAIN_BATCH)
        while (batch := self._fetcher.fetch()) is not END:
            if batch is None:
                self._batch_end.skip_none_batch()
                continue
            # its size weighs the values that `log` gets from here on
            metrics.batch = batch
            # counted before hooks and the step, which may change the batch in place
            samples, tokens = measure(batch)
            batch_idx = progress.batches_in_epoch
            closes_window = context.closes_window
            try:
                hooks.on_train_batch_start(trainer, module, batch, batch_idx)
                # cleared first, so that an error in the skip does not skip the next batch as well
                if context.requests.skips_batch:
                    context.requests.skips_batch = False
                    outputs = step.skip(batch_idx, closes_window)
                else:
                    outputs = step(batch, batch_idx, closes_window)
            except StopTraining as request:
                context.stop_by(request)
                if self._consensus is None:
                    # the batch has no complete gradients, so its window must not step
                    outputs, closes_window = {}, False
                else:
                    # the other ranks go on with their step, which needs this rank's part of the
                    # reduction
                    outputs = step.skip(batch_idx, closes_window)
            except Exception as error:
                add_note(error, f"in {progress.describe_batch(batch_idx)}")
                raise
            self._end_batch(batch, batch_idx, outputs, closes_window, samples, tokens)
            self._batch_end.finish(closes_window, outputs)
        # once more for a run that never flushes; the wait for the device is one in an epoch
        self._batch_end.loss_check.check(outputs)

    def _end_batch(
        self,
        batch: Any,
        batch_idx: int,
        outputs: dict[str, Any],
        closes_window: bool,
        samples: int,
        tokens: int,
    ) -> None:
        """Count a batch that was trained, step the schedulers, and call `on_train_batch_end`."""
        context, progress = self.context, self.context.training.progress
        # before the end hook: a checkpoint saved in it must hold this batch as trained
        progress.count_batch(closes_window, samples, tokens)
        context.batch.is_taken = False
        if context.after_first_batches:
            context.after_first_batches = [call for call in context.after_first_batches if call()]
        if closes_window and self._schedulers.has_step_schedulers:
            self._schedulers.after_step()
        if context.batch.is_last:
            self._schedulers.after_batches()
        context.hooks.on_train_batch_end(context.trainer, context.module, outputs, batch, batch_idx)

    def _check_states(self) -> None:
        """Find a callback's state that cannot be saved now, and not at a save hours later."""
        context = self.context
        if context.trainer.checkpoint_callbacks and not context.trainer.fast_dev_run:
            # here: a fit without a saver does not load it
            from trainer_hooks.checkpoint.encoding import require_plain

            # a `state_dict` that draws random numbers leaves no trace
            with isolated():
                context.connector.check_states(partial(require_plain, takes_classes=True))

    def _begin_epoch(self) -> None:
        """Start an epoch: advance the counters and call the start hooks."""
        context = self.context
        trainer, module, hooks = context.trainer, context.module, context.hooks
        self._cycles.before_epoch()
        context.training.progress.begin_epoch()
        context.continues_epoch = False
        context.training.timekeeper.begin_epoch(context.training.progress)
        context.batch.is_last = context.batch.has_scheduled = False
        stream = context.data.train_stream
        # before the start hooks, which see the new loaders; a hook may reload them once more
        if context.data.renew is not None:
            context.data.renew()
        context.training.metrics.enter(LogScope.TRAIN_EPOCH)
        groups_before = context.training.optimization.num_groups
        hooks.on_epoch_start(trainer, module)
        hooks.on_train_epoch_start(trainer, module)
        self._fit_schedulers_to_groups(groups_before)
        self._renew_training_step()
        if self._learning_check is not None:
            self._learning_check.begin_batches()
        # a hook has reloaded the loaders, so the number of batches may differ
        if stream is not context.data.train_stream:
            self._validation.build_schedule()
            self._validation.start()

    def _fit_schedulers_to_groups(self, groups_before: int) -> None:
        """Let the schedulers drive the groups of parameters that hooks have added.

        Args:
            groups_before: the number of groups before the hooks of the epoch's start.

        Raises:
            OptimizationError: a scheduler cannot take a new group.
        """
        context, optimization = self.context, self.context.training.optimization

        def name_adder() -> str:
            names = [
                type(member).__qualname__
                for member in (*context.trainer.callbacks, context.module)
                if any(overrides(member, h) for h in ("on_epoch_start", "on_train_epoch_start"))
            ]
            return f"a hook of {' or '.join(names)}" if names else "a hook"

        is_by_start_hook = optimization.num_groups != groups_before
        fit_schedulers_to_groups(optimization.schedulers, name_adder if is_by_start_hook else None)

    def _renew_training_step(self) -> None:
        """Use a `training_step` that was assigned to the module after the last epoch had begun.

        Raises:
            ModuleError: it was assigned in a run of several ranks, or it cannot be called.
        """
        module = self.context.module
        assigned = vars(module).get("training_step")
        if assigned is self._assigned_step:
            return
        if self.context.processes.is_distributed:
            # DistributedDataParallel and FSDP have wrapped the step that was there.
            raise ModuleError(
                f"{type(module).__qualname__}.training_step was assigned in the middle of a fit of "
                "several ranks, which cannot change it: assign it in __init__, setup or "
                "configure_model, or let one training_step choose."
            )
        self._assigned_step = assigned
        self._step.renew_training_step()

    def _is_complete(self) -> bool:
        """Return whether all batches of the epoch are done, so that nothing ended it early."""
        context = self.context
        return context.training.progress.batches_in_epoch >= context.data.train_stream.num_batches

    def _close_batches(self) -> None:
        """Close the loader, drop an open accumulation window and call `on_train_batches_end`."""
        context = self.context
        is_complete = self._is_complete()
        if is_complete and isinstance(self._step, TrainStep):
            self._step.missing_losses.require_one_loss(context.training.progress.batches_in_epoch)
        # before the validation, so that its workers do not run beside those of the training, unless
        # those are persistent
        self._fetcher.close(is_complete=is_complete)
        context.batch.is_taken, context.batch.window = False, 0
        context.training.progress.abandon_window()
        # the loop does this with the last batch; here for an epoch whose last batch was not known
        # as such
        if is_complete:
            self._schedulers.after_batches()
        context.training.metrics.enter(LogScope.TRAIN_EPOCH)
        context.training.progress.stage = EpochStage.VALIDATING
        context.hooks.on_train_batches_end(context.trainer, context.module)

    def _end_epoch(self) -> None:
        """Call the epoch's end hooks, step its schedulers, flush metrics, offer a checkpoint."""
        context, metrics = self.context, self.context.training.metrics
        trainer, module, hooks = context.trainer, context.module, context.hooks
        scopes = LogScope.TRAIN_BATCH, LogScope.TRAIN_EPOCH
        metrics.enter(LogScope.TRAIN_EPOCH)
        metrics.publish_reductions(*scopes)
        hooks.on_train_epoch_end(trainer, module)
        # reduce what the hook has logged; inside the hook each rank had its own values
        if self._consensus is not None:
            metrics.publish_reductions(*scopes)
        # after the hook: a scheduler may monitor a metric that it has logged just now
        self._schedulers.after_epoch()
        if self._learning_check is not None:
            self._learning_check.after_epoch()
        hooks.on_epoch_end(trainer, module)
        metrics.reduce_over_ranks(*scopes)
        flush_metrics(context, *metrics.reduce_and_reset(*scopes))
        metrics.enter(LogScope.CLOSED)
        # set before the checkpoint hook: a resume from its file must not repeat the end of the
        # epoch
        context.training.progress.stage = EpochStage.ENDED
        self._reach_consensus()
        if context.background.has_news:
            context.background.notify_durable()
        hooks.on_epoch_checkpoint(trainer, module)
        if context.training.progress.is_checkpoint_requested:
            self._requested_saves.save()

    def _finish_epoch(self) -> None:
        """Run the parts after an epoch's batches, from the present epoch stage on."""
        progress = self.context.training.progress
        if progress.stage is EpochStage.BATCHES:
            self._close_batches()
        if progress.stage is EpochStage.VALIDATING:
            self._validation.after_batches(is_complete=self._is_complete())
            if self._schedulers.has_waiting_schedulers:
                self._schedulers.after_validation()
            progress.stage = EpochStage.CLOSING
        if progress.stage is EpochStage.CLOSING:
            self._end_epoch()
        # counted after the checkpoint hook: a file saved there holds the epoch as ended, and its
        # resume begins with the count
        if progress.stage is EpochStage.ENDED:
            progress.complete_epoch()
            self._cycles.after_epoch()
            self._reach_consensus()

    def _reach_consensus(self) -> None:
        """Share the requests of every rank, in a run of several ranks."""
        if self._consensus is not None:
            self._consensus.reach()

    def _resume(self, slot: UnfinishedSlot) -> None:
        """Restore the states that wait for the loop; finish the batch or the slot of the save."""
        context, progress = self.context, self.context.training.progress
        # taken out, so that the content of the file does not stay in memory for the whole fit
        checkpoint, context.resumed = context.resumed, {}
        if not checkpoint:
            return
        context.state_registry.load(checkpoint, context.resumed_path, by_loop=True)
        if progress.stage is not EpochStage.BETWEEN:
            context.batch.is_last = self._is_complete()
        # a save between two batches was made in `on_batch_checkpoint`: `is_batch_open` is False
        # from then on, and `inside_batch` says that a batch was taken and not trained
        is_past_checkpoint_hook = progress.stage in (EpochStage.ENDED, EpochStage.BETWEEN) or (
            progress.stage is EpochStage.BATCHES
            and not progress.is_batch_open
            and not checkpoint["trainer_hooks"].get("inside_batch", False)
        )
        # if the checkpoint was saved in `on_train_batch_end` or a validation after this batch,
        # finish the batch, which repeats the validation from its start
        if progress.stage is EpochStage.BATCHES and progress.is_batch_open:
            self._finish_open_batch()
        if slot.is_open:
            slot.finish()
        if is_past_checkpoint_hook and progress.is_checkpoint_requested:
            # the checkpoint was saved in the hook that should have served this request, which may
            # have been the last one
            self._requested_saves.save()

    def _finish_open_batch(self) -> None:
        """Finish the batch of a resumed run, whose checkpoint was saved before that."""
        context = self.context
        context.training.metrics.enter(LogScope.TRAIN_BATCH)
        self._batch_end.finish(context.training.progress.batches_in_window == 0, {})

    @contextmanager
    def _stopping_in_order(self) -> Iterator[None]:
        """End the `with` block at a `StopTraining` that it raises."""
        try:
            yield
        except StopTraining as request:
            self.stop_between_hooks(request)

    def stop_between_hooks(self, request: StopTraining) -> None:
        """Close the open batch and epoch after `StopTraining` was raised between two hooks.

        It is raised between them, as by the transfer of a batch, or in a hook of a step that
        `BatchEnd` makes or skips. Any other of a hook or a step does not come here: the relay and
        `_epoch` pass it to `stop_by`.

        Raises:
            UsageError: it would end this rank alone.
        """
        if self._consensus is not None:
            self._consensus.reject_lone_stop(request)
        context, progress = self.context, self.context.training.progress
        context.stop_by(request)
        # a validation that was cut off has left these
        context.state.stage = RunningStage.TRAINING
        context.validation.snapshot = {}
        # the batch is given up, so a resume must not finish it
        progress.is_batch_open = False
        self._finish_epoch()


class EpochCycles:
    """Call the hooks of iterations: cycles of `iteration_length` epochs.

    Without `Trainer(iteration_length=...)` it does nothing.

    Args:
        context: the run context.
        requests: saves a checkpoint that was requested, after a cycle.
    """

    def __init__(self, context: RunContext, requests: CheckpointRequests) -> None:
        self._context = context
        self._requested_saves = requests
        self._length = context.plan.iteration_length

    def before_epoch(self) -> None:
        """Open a cycle, unless the epoch that begins lies inside one."""
        context = self._context
        if self._length is not None and not context.is_in_cycle:
            context.is_in_cycle = True
            context.training.timekeeper.begin_iteration(context.training.progress)
            context.hooks.on_iteration_start(context.trainer, context.module)

    def after_epoch(self) -> None:
        """Close the cycle if the epoch that was just counted is its last."""
        if (
            self._length is not None
            and self._context.training.progress.epochs_completed % self._length == 0
        ):
            self.close()

    def close(self) -> None:
        """Close the open cycle, also where the fit ends inside it."""
        context = self._context
        if self._length is None or not context.is_in_cycle:
            return
        # first, so that a checkpoint of the hooks below does not call them again on a resume
        context.is_in_cycle = False
        context.hooks.on_iteration_end(context.trainer, context.module)
        context.hooks.on_iteration_checkpoint(context.trainer, context.module)
        if context.training.progress.is_checkpoint_requested:
            self._requested_saves.save()


def _single_rank_step(context: RunContext) -> TrainStep | ManualStep:
    """Return the training step of a run, as for a single rank.

    Raises:
        OptimizationError: several optimizers with automatic optimization, or options that do not
            work with manual optimization.
    """
    module, plan = context.module, context.plan
    if not module.automatic_optimization:
        for option, value, unused in (
            ("gradient_clip_val", plan.gradient_clip_val, None),
            ("accumulate_grad_batches", plan.accumulate_grad_batches, 1),
            ("microbatch_size", plan.microbatch_size, None),
        ):
            if value != unused:
                raise OptimizationError(
                    f"Trainer({option}={value!r}) has no effect with manual optimization, which "
                    f"{type(module).__qualname__} asks for: leave it out, and do it in "
                    "training_step (self.clip_gradients(...), or step every n-th batch)."
                )
        from trainer_hooks.loops.manual_step import ManualStep

        step = ManualStep(context)
        # `self.manual_backward` and `self.optimizers()` of the module lead to the step.
        ours(module).attach_manual(step)
        return step
    overrides_step = defines(module, "optimizer_step", Module)
    optimizers = context.training.optimization.optimizers
    is_scaled = context.precision.name == "16-mixed"
    needs_closures = any(map(needs_closure, optimizers))
    if needs_closures:
        if plan.accumulate_grad_batches > 1:
            raise OptimizationError(
                f"Trainer(accumulate_grad_batches={plan.accumulate_grad_batches}) cannot be used "
                "with an optimizer that evaluates the loss itself, such as LBFGS: it would need "
                "all batches of a window again at each evaluation. Use larger batches."
            )
        if is_scaled and not overrides_step:
            raise OptimizationError(
                "Trainer(precision='16-mixed') cannot be used with an optimizer that evaluates the "
                "loss itself, such as LBFGS: its gradients cannot be unscaled. Use bf16-mixed."
            )
    if plan.microbatch_size is None:
        inner = TrainStep(context)
    else:
        from trainer_hooks.loops.microbatches import AutoMicrobatchStep, MicrobatchStep

        is_auto = plan.microbatch_size == "auto"
        inner = AutoMicrobatchStep(context) if is_auto else MicrobatchStep(context)
    offers_closure = not is_scaled and any(map(takes_closure, optimizers))
    if not (overrides_step or needs_closures or offers_closure):
        return inner
    from trainer_hooks.loops.closure_step import ClosureStep

    return ClosureStep(context, inner)


def connect_step(step: TrainStep | ManualStep, context: RunContext, *, is_manual: bool) -> None:
    """Let the trainer reach a step, and let the step average its gradients over several ranks."""
    # for `trainer.optimizers = ...`: the step holds the optimizer itself, not where it is kept
    context.rebind_optimizers = step.refresh_optimizers
    if not context.processes.is_distributed:
        return
    # imported here: runs of one rank load none of them, and runs with DDP nothing of FSDP
    from trainer_hooks.runtime.process_group import ProcessGroup

    if context.plan.microbatch_size == "auto":
        raise OptimizationError(
            "Trainer(microbatch_size='auto') cannot be used in several processes: a batch that is "
            "run again where the memory of one is not enough would be out of step with the others. "
            "Pass a number."
        )
    assert isinstance(context.processes, ProcessGroup)
    arguments = context.module, step.training_step, context.processes
    if context.processes.is_sharded:
        from trainer_hooks.runtime.fsdp import ShardedGradientSync

        for optimizer in context.training.optimization.optimizers:
            if needs_closure(optimizer):
                raise OptimizationError(
                    f"{type(optimizer).__qualname__} cannot be used with FSDP: it evaluates the "
                    "loss itself, and goes by all weights and gradients at once. Use DDP, or "
                    "another one."
                )
        step.attach_sync(ShardedGradientSync(*arguments, is_manual=is_manual))
    else:
        from trainer_hooks.runtime.gradient_sync import GradientSync

        step.attach_sync(GradientSync(*arguments, is_manual=is_manual))


@contextmanager
def ending_in_order(context: RunContext) -> Iterator[None]:
    """Let the training end in order at a signal that the `with` block raises.

    ::

        the first checkpoint callback that can saves           (save_before_leaving)
        on_train_end, and then, outside: on_fit_end, teardown, exit with 128 + the signal's number

    The end hooks of the interrupted epoch, iteration and validation are not called: they are called
    in the process that resumes. So no state can count an interrupted epoch as complete, and the
    checkpoint is exactly that of the batch. During the sanity check there is nothing to save.
    """
    try:
        yield
    except TerminationSignal as error:
        # a second signal asks for no orderly end: it acts at once, also in the middle of a batch
        if error.is_in_order and context.state.stage != "sanity_check":
            _save_before_leaving(context, signal.Signals(error.signum).name)
            context.state.stage = RunningStage.TRAINING
            context.hooks.on_train_end(context.trainer, context.module)
        raise


def obey_late_signal(context: RunContext) -> None:
    """Raise a signal that arrived after the last batch, as in `on_train_end`.

    A final checkpoint is saved first, unless one of the last batch exists.

    Raises:
        TerminationSignal: a termination signal is pending.
        KeyboardInterrupt: Ctrl-C is pending.
    """
    training = context.training
    try:
        context.requests.raise_pending_signal()
    except TerminationSignal as error:
        # a checkpoint of the last batch may exist already, saved at the end of training
        if training.saved_batches != training.progress.batches_completed:
            _save_before_leaving(context, signal.Signals(error.signum).name)
        raise


def _save_before_leaving(context: RunContext, name: str) -> None:
    """Let one checkpoint callback save: the time before the process is killed may be short."""
    trainer = context.trainer
    savers = trainer.checkpoint_callbacks
    if any(map(is_lazy, chain(context.module.parameters(), context.module.buffers()))):
        warn(
            f"{name} came before the first batch, with which the lazy weights of "
            f"{type(context.module).__qualname__} get their size, so nothing was saved: start "
            "the same training again.",
            TrainerHooksWarning,
        )
        return
    for saver in savers:
        # one file is enough; schedulers such as SLURM kill the process soon after the signal
        if ours(saver).save_before_leaving(trainer, context.module):
            return
    if not trainer.fast_dev_run:
        missing = "checkpoint callback that saves on request" if savers else "checkpoint callback"
        warn(
            f"{name}: this trainer has no {missing}, so nothing was saved: add "
            "ModelCheckpoint(...) to Trainer(callbacks=[...]).",
            TrainerHooksWarning,
        )
