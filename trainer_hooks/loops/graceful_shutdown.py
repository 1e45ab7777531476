"""End a fit in order after a signal such as SIGTERM: save a checkpoint, call the end hooks."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from trainer_hooks._log import warn
from trainer_hooks.context.run_state import RunningStage
from trainer_hooks.errors import TerminationSignal, TrainerHooksWarning

if TYPE_CHECKING:
    from trainer_hooks.context.context import RunContext

__all__ = ["GracefulShutdown"]


class GracefulShutdown:
    """Context around the training that handles a signal raised inside it.

    ::

        the first checkpoint callback that can saves           (save_before_leaving)
        on_train_end, and then, outside: on_fit_end, teardown, exit with 128 + the signal's number

    The end hooks of the interrupted epoch, iteration and validation are not called: they are called
    in the process that resumes. So no state can count an interrupted epoch as complete, and the
    checkpoint is exactly that of the batch. During the sanity check there is nothing to save.

    Args:
        context: the run context.
    """

    def __init__(self, context: RunContext) -> None:
        self._context = context

    def __enter__(self) -> None:
        """Do nothing; a signal is handled on exit."""

    def __exit__(self, error_type: object, error: BaseException | None, traceback: object) -> None:
        """Save a checkpoint and call `on_train_end` if a termination signal ended the training."""
        context = self._context
        has_begun = context.state.stage != "sanity_check"
        if isinstance(error, TerminationSignal) and error.is_in_order and has_begun:
            self._save(signal.Signals(error.signum).name)
            context.state.stage = RunningStage.TRAINING
            context.hooks.on_train_end(context.trainer, context.module)

    def after_training(self) -> None:
        """Raise a signal that arrived after the last batch, as in `on_train_end`.

        A final checkpoint is saved first, unless one of the last batch exists.

        Raises:
            TerminationSignal: a termination signal is pending.
            KeyboardInterrupt: Ctrl-C is pending.
        """
        training = self._context.training
        try:
            self._context.requests.raise_pending_signal()
        except TerminationSignal as error:
            # A checkpoint of the last batch may exist already, saved at the end of training.
            if training.saved_batches != training.progress.batches_completed:
                self._save(signal.Signals(error.signum).name)
            raise

    def _save(self, name: str) -> None:
        """Let one checkpoint callback save: the time before the process is killed may be short."""
        context = self._context
        trainer = context.trainer
        savers = trainer.checkpoint_callbacks
        for saver in savers:
            # One file is enough; schedulers such as SLURM kill the process soon after the signal.
            if saver.save_before_leaving(trainer, context.module):
                return
        if not trainer.fast_dev_run:
            missing = (
                "checkpoint callback that saves on request" if savers else "checkpoint callback"
            )
            warn(
                f"{name}: this trainer has no {missing}, so nothing was saved: add "
                "ModelCheckpoint(...) to Trainer(callbacks=[...]).",
                TrainerHooksWarning,
            )
