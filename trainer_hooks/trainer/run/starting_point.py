"""The starting point of a run: a checkpoint, read early for the loggers, restored after `setup`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks._log import warn
from trainer_hooks.clock.progress import EpochStage
from trainer_hooks.errors import CheckpointError, TrainerHooksWarning
from trainer_hooks.metrics.store import LogScope
from trainer_hooks.trainer.run.console_summary import log_resume
from trainer_hooks.trainer.run.run_origin import is_running_elsewhere

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_hooks.context.context import RunContext, Trainer
    from trainer_hooks.trainer.run.run_inputs import RunInputs
    from trainer_hooks.trainer.run.sharded_checkpoint import ShardReader
    from trainer_hooks.trainer.run.trainer_core import TrainerCore

__all__ = ["StartingPoint"]


class StartingPoint:
    """The state that a run starts from: a checkpoint, or the end of the previous run.

    Args:
        core: the trainer's core.
        trainer: the trainer, for the hooks.
        inputs: the inputs of the run.
    """

    def __init__(self, core: TrainerCore, trainer: Trainer, inputs: RunInputs) -> None:
        self._core, self._trainer, self._inputs = core, trainer, inputs
        self._read: dict[str, Any] | None = None
        self._reader: ShardReader | None = None

    def resume_loggers(self) -> None:
        """Resume the loggers' runs, before anything asks a logger for its folder."""
        path = self._inputs.ckpt_path
        if path is None or self._inputs.fn != "fit":
            return
        from trainer_hooks.checkpoint.file import summarize

        try:
            self._read = self._load(path)
        except CheckpointError:
            return  # `restore` reads the file again, and raises the error if it still exists
        known = self._read.get("trainer_hooks", {}).get("loggers", [])
        if known and is_running_elsewhere(summarize(path)):
            warn(
                f"checkpoint {path!r} is of a run that is still going in another process: this one "
                "logs to a folder of its own. Stop that one first to go on with it.",
                TrainerHooksWarning,
            )
            return
        self._core.guards.resume(known)

    def restore(
        self,
        context: RunContext,
        make_optimizers: Callable[..., None],
    ) -> None:
        """Restore the checkpoint, if there is one.

        Args:
            context: the run.
            make_optimizers: makes the optimizers of a fit after the module's `on_load_checkpoint`;
                its argument `is_rebuilt` says whether that hook replaced parameters.
        """
        core, trainer, start = self._core, self._trainer, self._core.start
        hooks, module = context.hooks, context.module
        hooks.on_before_load(trainer, module, start.path)
        start.is_open = False
        start.report = None
        checkpoint = None
        before = list(map(id, module.parameters()))  # by identity: shapes may stay the same
        if start.path is not None:
            checkpoint = self._read_checkpoint(context, start.path)
            hooks.fire_on_module("on_load_checkpoint", trainer, module, checkpoint)
        if self._inputs.fn == "fit":
            make_optimizers(is_rebuilt=before != list(map(id, module.parameters())))
        if checkpoint is not None and start.path is not None:
            hooks.on_load_checkpoint(trainer, module, checkpoint)
            self._restore(context, checkpoint, start.path)
        elif self._inputs.fn == "fit" and core.training.progress.stage is EpochStage.BATCHES:
            # an exception ended the last fit inside an epoch, which is repeated from its start
            core.training.progress.abandon_epoch()
            core.training.metrics.drop(*LogScope)
        hooks.on_after_load(trainer, module, checkpoint)

    def _read_checkpoint(self, context: RunContext, path: str) -> dict[str, Any]:
        """Return the checkpoint as this run, on this rank, is to restore it."""
        from trainer_hooks.checkpoint.lightning import is_lightning

        # a callback may have chosen another checkpoint than the loggers were resumed from
        read, self._read = self._read if path == self._inputs.ckpt_path else None, None
        checkpoint = read or self._load(path)
        if is_lightning(checkpoint):
            from trainer_hooks.trainer.run.lightning_checkpoint import convert_lightning_checkpoint

            checkpoint = convert_lightning_checkpoint(checkpoint, context, path)
        if context.processes.is_distributed:
            from trainer_hooks.trainer.run.gathered_checkpoint import select_rank_state

            checkpoint = select_rank_state(checkpoint, context.processes)
        self._reader = None
        if context.processes.is_sharded and "shards" in checkpoint.get("trainer_hooks", {}):
            from trainer_hooks.trainer.run.sharded_checkpoint import ShardReader

            self._reader = ShardReader(checkpoint, path, context.processes.global_rank)
            checkpoint = self._reader.filled(checkpoint)
        return checkpoint

    def _load(self, path: str) -> dict[str, Any]:
        """Return a checkpoint; a sharded run gets its tensors on the meta device."""
        from trainer_hooks.checkpoint.file import load_checkpoint, load_with_meta_tensors

        is_sharded = self._core.processes.is_sharded
        return load_with_meta_tensors(path) if is_sharded else load_checkpoint(path)

    def _restore(self, context: RunContext, checkpoint: dict[str, Any], path: str) -> None:
        from trainer_hooks.checkpoint.file import summarize
        from trainer_hooks.trainer.run import restoring

        core, start, is_fit = self._core, self._core.start, self._inputs.fn == "fit"
        if is_fit:
            if context.data.reload_as_saved is not None:
                context.data.reload_as_saved(checkpoint)
            own = checkpoint.get("trainer_hooks", {})
            if own.get("world_size", 1) != context.processes.world_size:
                from trainer_hooks.trainer.run.elastic_resume import fit_to_world_size

                checkpoint = fit_to_world_size(context, checkpoint, path)
            restoring.require_resumable(context, checkpoint, path)
        # an evaluation without a fit before it takes the callbacks' states, too; after a fit they
        # would be overwritten by older ones
        takes_callbacks = is_fit or (core.training.progress.is_fresh and "callbacks" in checkpoint)
        upgraded = restoring.upgrade_callbacks(core, checkpoint) if takes_callbacks else ()
        checkpoint = context.processes.shard_checkpoint(
            checkpoint,
            context.module,
            context.training.optimization.optimizers if is_fit else (),
            self._reader,
        )
        # a checkpoint that does not fit was refused above; from here on the states are loaded
        restoring.restore_module(context, checkpoint, path)
        if is_fit:
            restoring.reconcile_settings(core, checkpoint, path, self._inputs.overrides)
            restoring.restore_training(core, context, checkpoint)
            # later saves must count as newer than this one, wherever it was saved
            saved_at = summarize(path).saved_at
            core.training.saved_at = max(core.training.saved_at, saved_at)
        elif takes_callbacks:
            start.load_report = core.connector.load_state_dict(checkpoint["callbacks"])
        if start.load_report is not None:
            report, start.load_report = start.load_report, None
            start.report = restoring.report_callbacks(core, checkpoint, report, upgraded)
        if is_fit:
            core.training.newest_path = path
            core.training.newest_batches = core.training.progress.batches_completed
            assert start.report is not None
            log_resume(core.training, start.report, path)
