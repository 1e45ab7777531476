"""What was asked of a fit while it runs: checkpoints saved on request, and what came too late."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks._log import warn
from trainer_hooks.errors import StopTraining, TrainerHooksWarning

if TYPE_CHECKING:
    from trainer_hooks.clock import Progress
    from trainer_hooks.context import RunContext

__all__ = ["CheckpointRequests", "drop_requests"]


class CheckpointRequests:
    """Serve `trainer.request_checkpoint()`.

    Args:
        context: the run.
    """

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._is_told = False

    def save(self) -> None:
        """Let every checkpoint callback save.

        It comes after the hook of the slot, so that the file holds what callbacks did in it. The
        request is over before the file is written, so that a resume from it does not save again;
        if that fails, it still stands.
        """
        context, progress = self._context, self._context.training.progress
        trainer = context.trainer
        savers = trainer.checkpoint_callbacks
        progress.is_checkpoint_requested = False
        if not savers and not trainer.fast_dev_run and not self._is_told:
            self._is_told = True
            warn(
                "trainer.request_checkpoint() was called, but this trainer has no checkpoint "
                "callback, so nothing is saved: add ModelCheckpoint(...) to "
                "Trainer(callbacks=[...]), and leave out enable_checkpointing=False.",
                TrainerHooksWarning,
            )
        for saver in savers:
            try:
                with context.connector.held_back(saver, "save_now"):
                    saver.save_now(trainer, context.module)
            except StopTraining as request:
                context.stop_by(request)
            except BaseException:
                progress.is_checkpoint_requested = True
                raise


def drop_requests(progress: Progress, is_told: bool) -> None:
    """Forget what was asked for too late to be done; a later fit does not do it.

    Args:
        progress: the counters that hold it.
        is_told: whether to warn of it.
    """
    is_validated = progress.validated_at == progress.batches_completed
    is_validation_lost = progress.is_validation_requested and not is_validated
    is_checkpoint_lost = progress.is_checkpoint_requested
    progress.is_validation_requested = progress.is_checkpoint_requested = False
    if is_told and is_validation_lost:
        warn(
            "trainer.request_validation() was called, but no training batch ended after it, so "
            "nothing was validated: call it earlier, or trainer.validate(...) after fit.",
            TrainerHooksWarning,
        )
    if is_told and is_checkpoint_lost:
        warn(
            "trainer.request_checkpoint() was called, but neither a batch nor an epoch ended after "
            "it, so nothing was saved: call it earlier, or trainer.save_checkpoint(path) there.",
            TrainerHooksWarning,
        )
