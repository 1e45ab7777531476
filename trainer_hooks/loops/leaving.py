"""Leaving: what a fit does when a signal, as of a scheduler that takes the machine, ends it."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from trainer_hooks._log import warn
from trainer_hooks.context import RunningStage
from trainer_hooks.errors import TerminationSignal, TrainerHooksWarning

if TYPE_CHECKING:
    from trainer_hooks.context import RunContext

__all__ = ["Leaving"]


class Leaving:
    """Stand around a training; end it in order when a signal is heeded in it.

    ::

        the first checkpoint callback that can saves           (save_before_leaving)
        on_train_end, and then, outside: on_fit_end, teardown, exit with 128 + the signal's number

    The epoch is not over, nor is an iteration or a validation that is under way: their end hooks
    fire in the process that resumes. So nothing can be saved that counts an epoch cut short, and
    the checkpoint is exactly that of the batch. In the sanity check nothing has begun yet.

    Args:
        context: the run.
    """

    def __init__(self, context: RunContext) -> None:
        self._context = context

    def __enter__(self) -> None:
        """Nothing is to be done before a signal comes."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        context = self._context
        has_begun = context.state.stage != "sanity_check"
        if isinstance(error, TerminationSignal) and error.is_in_order and has_begun:
            self._save(signal.Signals(error.signum).name)
            context.state.stage = RunningStage.TRAINING
            context.hooks.on_train_end(context.trainer, context.module)

    def after_training(self) -> None:
        """Heed a signal that came when the training was over, as in `on_train_end`.

        Raises:
            TerminationSignal: there was one; a checkpoint of the end is saved before, unless there
                is one.
            KeyboardInterrupt: it was Ctrl-C.
        """
        training = self._context.training
        try:
            self._context.asked.heed_signal()
        except TerminationSignal as error:
            if training.saved_batches != training.progress.batches_completed:
                self._save(signal.Signals(error.signum).name)
            raise

    def _save(self, name: str) -> None:
        """Let one callback save; the time that is left may be short."""
        context = self._context
        trainer = context.trainer
        savers = trainer.checkpoint_callbacks
        for saver in savers:
            if saver.save_before_leaving(trainer, context.module):
                return
        if not trainer.fast_dev_run:
            what = "checkpoint callback that saves on request" if savers else "checkpoint callback"
            warn(
                f"{name}: this trainer has no {what}, so nothing was saved: add "
                "ModelCheckpoint(...) to Trainer(callbacks=[...]).",
                TrainerHooksWarning,
            )
