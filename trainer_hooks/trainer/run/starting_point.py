"""The checkpoint that a run goes on from: read once, first for its loggers, then for all else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks import checkpoint as files
from trainer_hooks._log import warn
from trainer_hooks.clock import EpochStage
from trainer_hooks.errors import CheckpointError, TrainerHooksWarning
from trainer_hooks.metrics import Scope
from trainer_hooks.trainer.run.origin import is_at_work_elsewhere
from trainer_hooks.trainer.run.telling import tell_resume

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_hooks.context import RunContext, Trainer
    from trainer_hooks.trainer.run.job import Job
    from trainer_hooks.trainer.run.others import Others
    from trainer_hooks.trainer.run.parted import PartsReader
    from trainer_hooks.trainer.run.session import Session

__all__ = ["StartingPoint"]


class StartingPoint:
    """Where a run begins: a checkpoint, or what the last run left.

    Args:
        session: what outlives the run.
        trainer: what hooks are given.
        job: what was asked for.
    """

    def __init__(self, session: Session, trainer: Trainer, job: Job) -> None:
        self._session, self._trainer, self._job = session, trainer, job
        self._read: dict[str, Any] | None = None
        self._reader: PartsReader | None = None

    def resume_loggers(self) -> None:
        """Let the loggers go on with their runs, before anybody asks for their folders."""
        path = self._job.ckpt_path
        if path is None or self._job.fn != "fit":
            return
        try:
            self._read = self._load(path)
        except CheckpointError:
            return  # it is raised when the file is read in its turn, where it is still not there
        known = self._read.get("trainer_hooks", {}).get("loggers", [])
        if known and is_at_work_elsewhere(files.summarize(path)):
            warn(
                f"checkpoint {path!r} is of a run that is still going in another process: this one "
                "logs to a folder of its own. Stop that one first to go on with it.",
                TrainerHooksWarning,
            )
            return
        self._session.guards.resume(known)

    def restore(
        self, context: RunContext, others: Others | None, make_optimizers: Callable[..., None]
    ) -> None:
        """Put a checkpoint back, if there is one.

        Args:
            context: the run.
            others: the other processes, where there are several.
            make_optimizers: makes those of a fit, once the module's `on_load_checkpoint` is over;
                it is told whether layers were made anew there.
        """
        session, trainer, start = self._session, self._trainer, self._session.start
        hooks, module = context.hooks, context.module
        hooks.on_before_load(trainer, module, start.path)
        start.is_open = False
        start.report = None
        checkpoint = None
        before = list(map(id, module.parameters()))
        if start.path is not None:
            checkpoint = self._found(context, start.path, others)
            hooks.fire_to_module("on_load_checkpoint", trainer, module, checkpoint)
        if self._job.fn == "fit":
            make_optimizers(is_rebuilt=before != list(map(id, module.parameters())))
        if checkpoint is not None and start.path is not None:
            hooks.on_load_checkpoint(trainer, module, checkpoint)
            self._put_back(context, checkpoint, start.path)
        elif self._job.fn == "fit" and session.training.progress.stage is EpochStage.BATCHES:
            # an exception ended the last fit inside an epoch, which begins anew
            session.training.progress.abandon_epoch()
            session.training.metrics.drop(*Scope)
        hooks.on_after_load(trainer, module, checkpoint)

    def _found(self, context: RunContext, path: str, others: Others | None) -> dict[str, Any]:
        """Return the checkpoint as this run, and this process of it, is to see it."""
        from trainer_hooks.trainer.run.adoption import adopted

        read, self._read = self._read if path == self._job.ckpt_path else None, None
        checkpoint = adopted(read or self._load(path), context, path)
        if others is not None:
            checkpoint = others.own_part(checkpoint)
        self._reader = None
        if context.processes.is_sharded and "shards" in checkpoint.get("trainer_hooks", {}):
            from trainer_hooks.trainer.run.parted import PartsReader

            self._reader = PartsReader(checkpoint, path, context.processes.global_rank)
            checkpoint = self._reader.filled(checkpoint)
        return checkpoint

    def _load(self, path: str) -> dict[str, Any]:
        """Return a checkpoint, without the values of which this process needs its shards alone."""
        is_sharded = self._session.processes.is_sharded
        return files.load_parts(path) if is_sharded else files.load_checkpoint(path)

    def _put_back(self, context: RunContext, checkpoint: dict[str, Any], path: str) -> None:
        from trainer_hooks.trainer.run import restoring
        from trainer_hooks.trainer.run.resizing import fitted_to_processes

        session, start, is_fit = self._session, self._session.start, self._job.fn == "fit"
        if is_fit:
            if context.data.come_back is not None:
                context.data.come_back(checkpoint)
            checkpoint = fitted_to_processes(context, checkpoint, path)
            restoring.require_resumable(context, checkpoint, path)
        takes_callbacks = is_fit or (
            session.training.progress.is_fresh and "callbacks" in checkpoint
        )
        upgraded = restoring.upgrade_callbacks(session, checkpoint) if takes_callbacks else ()
        checkpoint = context.processes.divided(
            checkpoint,
            context.module,
            context.training.optimization.optimizers if is_fit else (),
            self._reader,
        )
        restoring.restore_module(context, checkpoint, path)
        if is_fit:
            restoring.settle_conditions(session, checkpoint, path, self._job.overrides)
            restoring.restore_training(session, context, checkpoint)
            saved_at = files.summarize(path).saved_at
            session.training.saved_at = max(session.training.saved_at, saved_at)
        elif takes_callbacks:
            start.found = session.connector.load_state_dict(checkpoint["callbacks"])
        if start.found is not None:
            found, start.found = start.found, None
            start.report = restoring.report_callbacks(session, checkpoint, found, upgraded)
        if is_fit:
            session.training.newest_path = path
            session.training.newest_batches = session.training.progress.batches_completed
            assert start.report is not None
            tell_resume(session.training, start.report, path)
