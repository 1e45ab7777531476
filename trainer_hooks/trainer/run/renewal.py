"""Loaders that are asked for anew every so many epochs, at the same ones after a resume."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.runtime import rng
from trainer_hooks.trainer.run.job import reload_data
from trainer_hooks.trainer.run.restoring import restore_datamodule

if TYPE_CHECKING:
    from trainer_hooks.context import RunContext
    from trainer_hooks.trainer.run.job import Job

__all__ = ["Renewal"]


class Renewal:
    """Serve `reload_dataloaders_every_n_epochs`.

    A checkpoint holds in which epoch the loaders were made, and the random numbers of then. So a
    resumed run asks for them again as that epoch did, before it goes on in the midst of them.

    Args:
        job: what is to be run.
        context: the run.
    """

    def __init__(self, job: Job, context: RunContext) -> None:
        self._job, self._context = job, context
        context.data.renew, context.data.come_back = self.begin_epoch, self.come_back
        self._note()

    def begin_epoch(self) -> None:
        """Ask for the loaders anew, if an epoch begins in which that is due."""
        context = self._context
        epoch = context.training.progress.epochs_completed
        is_due = epoch % context.plan.reload_dataloaders_every_n_epochs == 0
        if is_due and context.data.renewed["epoch"] != epoch:
            self._note()
            reload_data(self._job, context)

    def come_back(self, checkpoint: dict[str, Any]) -> None:
        """Ask for the loaders as the epoch did in which those of a checkpoint were made.

        It comes before the checkpoint is restored, so that it can be compared with them.
        """
        context, progress = self._context, self._context.training.progress
        renewed = checkpoint.get("trainer_hooks", {}).get("renewed")
        if not renewed:
            return
        restore_datamodule(context, checkpoint)
        present, numbers = progress.epochs_completed, rng.capture()
        progress.epochs_completed = renewed["epoch"]
        rng.restore(renewed["rng"])
        try:
            reload_data(self._job, context)
        finally:
            progress.epochs_completed = present
            rng.restore(numbers)

    def _note(self) -> None:
        epoch = self._context.training.progress.epochs_completed
        self._context.data.renewed = {"epoch": epoch, "rng": rng.capture()}
