"""Finish a training batch: flush metrics, validate, and serve requested checkpoints."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from torch import Tensor

from trainer_hooks._log import warn
from trainer_hooks._names import ours
from trainer_hooks.clock.progress import EpochStage
from trainer_hooks.context.plan import NEVER
from trainer_hooks.errors import StopTraining, TrainerHooksWarning
from trainer_hooks.loops.metric_flush import flush_metrics
from trainer_hooks.loops.train_step import TrainStep
from trainer_hooks.metrics.store import LogScope

if TYPE_CHECKING:
    from trainer_hooks.clock.progress import Progress
    from trainer_hooks.context.context import RunContext
    from trainer_hooks.loops.manual_step import ManualStep
    from trainer_hooks.loops.rank_consensus import RankConsensus
    from trainer_hooks.loops.scheduler_stepper import SchedulerStepper
    from trainer_hooks.loops.validation import FitValidation

_GUARD_CLASSES = frozenset({"NaNGuard", "NaNMonitor", "TerminateOnNaNCallback"})
"""Names of callbacks that check the loss themselves; subclasses are recognised through the MRO."""


class BatchEnd:
    """Finish a training batch, and step the window that an epoch's end leaves open.

    Finishing means flushing metrics, validating if that is due, and offering a checkpoint.

    Args:
        context: the run context.
        step: trains one batch.
        schedulers: steps the learning rate schedulers.
        validation: runs validations inside the epoch.
        requests: saves checkpoints that were requested.
        consensus: shares requests between ranks; None in a run of one rank.

    Attributes:
        loss_check: warns of a loss that is NaN or infinite.
    """

    def __init__(
        self,
        context: RunContext,
        step: TrainStep | ManualStep,
        schedulers: SchedulerStepper,
        validation: FitValidation,
        requests: CheckpointRequests,
        consensus: RankConsensus | None,
    ) -> None:
        self._context = context
        self._step = step
        self._schedulers = schedulers
        self._validation = validation
        self._requested_saves = requests
        self._consensus = consensus
        self._has_warned_of_none = False
        self.loss_check = NonFiniteLossCheck(context)

    def skip_none_batch(self) -> None:
        """Count a batch for which the loader yielded None; it adds no gradients to its window."""
        context, progress = self._context, self._context.training.progress
        if not self._has_warned_of_none:
            self._has_warned_of_none = True
            warn(
                f"the training loader {context.data.train_stream.loader!r} gave None for batch "
                f"{progress.batches_in_epoch} of epoch {progress.epochs_completed}: such a batch "
                "is skipped, without a hook. Let collate_fn return what is left of the samples, "
                "unless that is meant.",
                TrainerHooksWarning,
            )
        closes_window = context.closes_window
        # not left out of the count: its place in the window is that of a batch, on all ranks
        self._step.skip(progress.batches_in_epoch, closes_window)
        progress.count_batch(closes_window, 0, 0)
        context.batch.is_taken = False
        if closes_window:
            self._schedulers.after_step()
        self.finish(closes_window, {})

    def finish(self, closes_window: bool, outputs: dict[str, Any]) -> None:
        """Flush metrics to the loggers, validate if that is due, and offer a checkpoint.

        Args:
            closes_window: whether the batch was the last of its accumulation window.
            outputs: the step's outputs, as hooks get them.
        """
        progress = self._context.training.progress
        if not self.flush(closes_window, outputs):
            return
        # before the checkpoint hook, so that savers find the metric that they monitor
        if self._validation.is_inside or progress.is_validation_requested:
            self._validation.after_batch()
        self.offer_checkpoint()

    def flush(self, closes_window: bool, outputs: dict[str, Any]) -> bool:
        """Share requests between ranks, flush metrics to the loggers, and end the epoch if asked.

        Args:
            closes_window: whether the batch was the last of its accumulation window.
            outputs: the step's outputs, as hooks get them.

        Returns:
            Whether the epoch goes on, so that a validation and a checkpoint may follow.
        """
        context, progress = self._context, self._context.training.progress
        if closes_window and self._consensus is not None:
            self._consensus.after_window()
        if closes_window and (
            progress.batches_stepped % context.plan.log_every_n_steps == 0
            or (context.requests.is_stopping and context.plan.log_every_n_steps < NEVER)
        ):
            flush_metrics(context, *context.training.metrics.step_metrics())
            # the flush has copied values to the host, so reading the loss adds no wait
            if context.trainer.loggers:
                self.loss_check.check(outputs)
        # with several ranks an epoch can end at a window's end only: unreduced gradients differ by
        # rank and could not be stepped with
        if progress.is_epoch_end_requested and (closes_window or self._consensus is None):
            self._end_epoch_early()
            return False
        return True

    def offer_checkpoint(self) -> None:
        """Close the batch, call `on_batch_checkpoint`, and save a checkpoint that was requested."""
        context, progress = self._context, self._context.training.progress
        # a resume from a checkpoint saved before this line calls finish() again, which repeats the
        # validation; from one saved after it, it does not
        progress.is_batch_open = False
        if context.background.has_news:
            context.background.notify_durable()
        context.hooks.on_batch_checkpoint(context.trainer, context.module)
        if progress.is_checkpoint_requested:
            self._requested_saves.save()

    def _end_epoch_early(self) -> None:
        """End the epoch after this batch, as `trainer.end_epoch()` requested.

        No checkpoint is saved before the batches are closed: a resume would continue inside them.
        """
        context, progress = self._context, self._context.training.progress
        progress.is_epoch_end_requested = progress.is_batch_open = False
        context.batch.is_last = True
        context.data.train_stream.end_epoch_after(progress.batches_in_epoch)
        self.step_open_window()

    def step_open_window(self) -> None:
        """Step with the batches of the accumulation window that the epoch's end leaves open."""
        progress = self._context.training.progress
        if progress.batches_in_window:
            if isinstance(self._step, TrainStep) and progress.has_gradients:
                self._step.update()
            progress.close_window()
            self._schedulers.after_step()


class CheckpointRequests:
    """Save the checkpoints that `trainer.request_checkpoint()` asked for.

    Args:
        context: the run context.
    """

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._has_warned = False

    @property
    def savers(self) -> list[Any]:
        """The checkpoint callbacks, those that save weights alone last.

        A resume from the checkpoint of one lets those after it save. If the process is killed, what
        is saved before a checkpoint to resume from would be saved once more.
        """
        savers = self._context.trainer.checkpoint_callbacks
        return sorted(savers, key=lambda saver: getattr(saver, "save_weights_only", False) is True)

    def save(self, after: str = "") -> None:
        """Let every checkpoint callback save now.

        It is called after the checkpoint hook, so that the file holds what callbacks changed in the
        hook. The request is cleared before the file is written, so that a resume from the file does
        not save again; if writing fails, the request is kept.

        Args:
            after: the state key of a saver, to leave out it and those before it.
        """
        context, progress = self._context, self._context.training.progress
        trainer, savers = context.trainer, self.savers
        progress.is_checkpoint_requested = False
        if not savers and not trainer.fast_dev_run and not self._has_warned:
            self._has_warned = True
            warn(
                "trainer.request_checkpoint() was called, but this trainer has no checkpoint "
                "callback, so nothing is saved: add ModelCheckpoint(...) to "
                "Trainer(callbacks=[...]), and leave out enable_checkpointing=False.",
                TrainerHooksWarning,
            )
        if after:
            keys = [saver.state_key for saver in savers]
            savers = savers[keys.index(after) + 1 :] if after in keys else []
        # every saver, also after one that asked to stop: each has files of its own
        for saver in savers:
            # for the files: a resume from one lets the savers after it save, too
            context.requests.serving = saver.state_key
            try:
                with context.connector.handling_errors(saver, "save_now"):
                    ours(saver).save_now(trainer, context.module)
            except StopTraining as request:
                context.stop_by(request)
            except BaseException:
                progress.is_checkpoint_requested = True
                raise
            finally:
                context.requests.serving = ""


class UnfinishedSlot:
    """The slot in which the resumed checkpoint was saved, with the turns that were still to come.

    The process may have been killed before the savers after that one had saved: without their turn
    their files would stay behind the others, or be missing.

    Args:
        context: the run context, before the loop takes `resumed`.
        requests: saves checkpoints that were requested.
    """

    def __init__(self, context: RunContext, requests: CheckpointRequests) -> None:
        self._context = context
        self._requested_saves = requests
        # None in those that were not saved in a slot
        slot = context.resumed.get("trainer_hooks", {}).get("slot") or {}
        self._hook, self._after = slot.get("hook", ""), slot.get("after", "")
        self._progress = context.training.progress.state_dict()

    @property
    def is_open(self) -> bool:
        """Whether any turn is still to come."""
        context, after = self._context, self._after_callback
        if self._hook == "save_now":
            savers = self._requested_saves.savers
            return after in savers and after is not savers[-1]
        if after is None:
            return False
        return (
            context.training.progress.is_checkpoint_requested
            or context.hooks.has_listeners_after(self._hook, after)
        )

    def finish(self) -> None:
        """Call the hook on the callbacks after that one, and serve a request for a checkpoint."""
        context, progress, after = (
            self._context,
            self._context.training.progress,
            self._after_callback,
        )
        # `on_epoch_checkpoint` comes before the epoch is counted, and the resume has counted it:
        # set back for the hook, counted again below
        is_epoch_counted = self._progress["epochs_completed"] != progress.epochs_completed
        if is_epoch_counted:
            progress.load_state_dict(self._progress)
        in_batches = progress.stage is EpochStage.BATCHES
        context.training.metrics.enter(LogScope.TRAIN_BATCH if in_batches else LogScope.CLOSED)
        if self._hook == "save_now":
            self._requested_saves.save(self._after)
        elif after is not None:
            context.hooks.fire_after(self._hook, after, context.trainer, context.module)
            if progress.is_checkpoint_requested:
                self._requested_saves.save()
        if is_epoch_counted:
            progress.complete_epoch()

    @property
    def _after_callback(self) -> object:
        """The callback whose turn it was, or None if it does not take part any more."""
        callbacks = self._context.connector.callbacks
        return next((each for each in callbacks if each.state_key == self._after), None)


def discard_unserved_requests(progress: Progress, warns: bool) -> None:
    """Clear requests that came too late to be served, so that a later fit does not serve them.

    Args:
        progress: the counters, which hold the requests.
        warns: whether to warn of a request that was discarded.
    """
    # a validation at this very batch has served the request
    is_validated = progress.validated_at == progress.batches_completed
    is_validation_lost = progress.is_validation_requested and not is_validated
    is_checkpoint_lost = progress.is_checkpoint_requested
    progress.is_validation_requested = progress.is_checkpoint_requested = False
    if warns and is_validation_lost:
        warn(
            "trainer.request_validation() was called, but no training batch ended after it, so "
            "nothing was validated: call it earlier, or trainer.validate(...) after fit.",
            TrainerHooksWarning,
        )
    if warns and is_checkpoint_lost:
        warn(
            "trainer.request_checkpoint() was called, but neither a batch nor an epoch ended after "
            "it, so nothing was saved: call it earlier, or trainer.save_checkpoint(path) there.",
            TrainerHooksWarning,
        )


class NonFiniteLossCheck:
    """Warn once of a loss that is NaN or infinite, without adding a wait for the device.

    It is called where metric values were copied to the host in any case, and at the end of an
    epoch.

    Args:
        context: the run context.
    """

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._has_warned = False

    def check(self, outputs: dict[str, Any]) -> None:
        """Check the loss of a batch, if its outputs hold one."""
        loss = outputs.get("loss")
        if self._has_warned or self._context.requests.is_stopping:
            # a callback has reacted already, as the learning rate finder does
            return
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            return
        value = float(loss)
        if math.isfinite(value) or (
            # the loss scaler skips such a step and lowers its scale; infinity is part of its
            # search
            not math.isnan(value) and self._context.precision.name == "16-mixed"
        ):
            return
        self._has_warned = True
        # by the names of classes: importing them would load callbacks that the run does not have
        guards = (
            cls.__name__ for c in self._context.connector.callbacks for cls in type(c).__mro__
        )
        if not _GUARD_CLASSES.isdisjoint(guards):
            return
        progress = self._context.training.progress
        warn(
            f"the training loss is {value} in epoch {progress.epochs_completed}, at optimizer step "
            f"{progress.steps_completed}: the training goes on, and the weights hardly recover. "
            "Lower the learning rate, or add the callback NaNGuard(), which stops at such a step, "
            "skips it or goes back.",
            TrainerHooksWarning,
        )
