"""The starting point of a run: a checkpoint, read early for the loggers, restored after `setup`."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from trainer_hooks._log import log, warn
from trainer_hooks.clock.progress import EpochStage
from trainer_hooks.errors import CheckpointError, TrainerHooksWarning
from trainer_hooks.hooks.spec import may_change_optimizers
from trainer_hooks.metrics.store import LogScope
from trainer_hooks.module.added_groups import drop_added_groups
from trainer_hooks.module.replaced_states import REPLACEABLE
from trainer_hooks.trainer.identity.run_origin import is_live_elsewhere

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trainer_hooks.context.context import RunContext, Trainer
    from trainer_hooks.hooks.relay import HookRelay
    from trainer_hooks.module.module import Module
    from trainer_hooks.trainer.core.run_inputs import RunInputs
    from trainer_hooks.trainer.core.trainer_core import TrainerCore
    from trainer_hooks.trainer.ranks.sharded_checkpoint import ShardReader

_HOOKS_OF_RESTORE = ("on_load_checkpoint", "on_after_load", "on_fit_start")
"""The hooks of callbacks between the weights of a checkpoint and its optimizers."""


class StartingPoint:
    """The state that a run starts from: a checkpoint, or the end of the previous run.

    Args:
        core: the trainer's core.
        trainer: the trainer, for the hooks.
        inputs: the inputs of the run.

    Attributes:
        early_checkpoint: a fit's checkpoint, between its reading and its restoring.
    """

    def __init__(self, core: TrainerCore, trainer: Trainer, inputs: RunInputs) -> None:
        self._core, self._trainer, self._inputs = core, trainer, inputs
        self.early_checkpoint: dict[str, Any] | None = None

    def read_and_resume_loggers(self) -> None:
        """Read a fit's checkpoint and resume its loggers, before one is asked for its folder."""
        path = self._inputs.ckpt_path
        if path is None or self._inputs.fn != "fit":
            return
        from trainer_hooks.checkpoint.file import load_checkpoint, summarize
        from trainer_hooks.checkpoint.parts import restoring_part

        # all of it, although the loggers need little: `restoring` takes over what was read here
        is_sharded, io = self._core.processes.is_sharded, self._core.custom_io
        try:
            self.early_checkpoint = load_checkpoint(path, reads_shards=not is_sharded, io=io)
        except CheckpointError:
            return  # `restoring` reads the file again, and raises, if it still cannot be read
        states = self.early_checkpoint.get("trainer_hooks", {}).get("loggers", [])
        if states and is_live_elsewhere(summarize(path, io).process):
            warn(
                f"checkpoint {path!r} is of a run that is still going in another process: this one "
                "logs to a folder of its own. Stop that one first to go on with it.",
                TrainerHooksWarning,
            )
            return
        with restoring_part("loggers", path):
            difference = self._core.guards.resume(states)
        if difference and not self._core.config.fast_dev_run:  # which logs nothing
            log.info("the checkpoint and this run's loggers differ: %s", difference)

    @contextmanager
    def restoring(
        self, context: RunContext, make_optimizers: Callable[..., None]
    ) -> Iterator[None]:
        """Restore the checkpoint, if there is one: before the `with` block, and at its end.

        In the block are the hooks that may still replace optimizers, or change their groups; so
        those that do not fit yet are compared and restored at its end. If they do not fit then, or
        a hook fails, the module and the training are as they were.

        Args:
            context: the run.
            make_optimizers: makes the optimizers of a fit after the module's `on_load_checkpoint`;
                its argument `is_rebuilt` says whether that hook replaced parameters.
        """
        core, trainer, start_checkpoint = self._core, self._trainer, self._core.start_checkpoint
        hooks, module, is_fit = context.hooks, context.module, self._inputs.fn == "fit"
        hooks.on_before_load(trainer, module, start_checkpoint.path)
        start_checkpoint.is_open = False  # from here on no callback may choose another checkpoint
        start_checkpoint.report = None
        checkpoint = reader = None
        before = list(map(id, module.parameters()))  # by identity: shapes may stay the same
        if start_checkpoint.path is not None:
            checkpoint, reader = self._read_checkpoint(context, start_checkpoint.path)
            hooks.fire_on_module("on_load_checkpoint", trainer, module, checkpoint)
        # the module's hook may replace layers, whose parameters the optimizers take, and the hooks
        # from here on may look at the optimizers
        if is_fit:
            is_rebuilt = before != list(map(id, module.parameters()))
            # those of an earlier fit have made steps
            is_replaced = start_checkpoint.path is not None and self._inputs.overrides & REPLACEABLE
            make_optimizers(is_rebuilt=is_rebuilt or bool(is_replaced))
        if checkpoint is None or start_checkpoint.path is None:
            if is_fit and core.training.progress.stage is EpochStage.BATCHES:
                # an exception ended the last fit inside an epoch, which is repeated from its start
                from trainer_hooks.trainer.messages.console_summary import log_repeated_epoch

                log_repeated_epoch(core, trainer)
                core.training.progress.abandon_epoch(core.training.ended.window or 1)
                core.training.metrics.drop(*LogScope)  # of the batches that are trained once more
            hooks.on_after_load(trainer, module, None)
            yield
            return
        from trainer_hooks.checkpoint.parts import restoring_part
        from trainer_hooks.trainer.restoring.checkpoint_restorer import CheckpointRestorer

        if is_fit:
            # first: hooks from here on read their callback's state from the checkpoint
            versions = checkpoint.get("trainer_hooks", {}).get("state_versions", {})
            with restoring_part("callbacks", start_checkpoint.path):
                core.connector.require_fitting_states(checkpoint.get("callbacks", {}), versions)
        hooks.on_before_restore(trainer, module, checkpoint)
        # at the call, not earlier: a hook until here may have brought callbacks
        changing = {hook: _changes_optimizers(hooks, hook, module) for hook in _HOOKS_OF_RESTORE}
        restorer = CheckpointRestorer(
            core, context, self._inputs, checkpoint, start_checkpoint.path, read_shards=reader
        )
        restorer.check()
        if not is_fit:
            restorer.restore()
            hooks.on_after_load(trainer, module, checkpoint)
            yield
            return
        may_change = any(changing.values())
        with restorer.undone_on_error(with_weights=may_change or restorer.awaits_weights):
            # those of an earlier fit may have more groups than the checkpoint
            drop_added_groups(core.training.optimization, core.training.setup)
            if not may_change:
                # before the weights are restored, of which there is no copy
                restorer.require_fitting_optimizers()
            restorer.restore()
            # before each hook, so that it finds them restored if they fit already
            restorer.restore_optimizers(
                may_change=changing["on_after_load"] or changing["on_fit_start"]
            )
            hooks.on_after_load(trainer, module, checkpoint)
            if not changing["on_fit_start"]:
                # savers may delete files in it
                restorer.restore_optimizers(may_change=False)
            yield
            restorer.finish()

    def _read_checkpoint(
        self, context: RunContext, path: str
    ) -> tuple[dict[str, Any], ShardReader | None]:
        """Return the checkpoint as this rank is to restore it, and the reader of its shards."""
        from trainer_hooks.checkpoint.file import load_checkpoint
        from trainer_hooks.checkpoint.lightning import is_lightning
        from trainer_hooks.checkpoint.parts import restoring_part

        # a callback may have chosen another checkpoint than the loggers were resumed from
        read = self.early_checkpoint if path == self._inputs.ckpt_path else None
        self.early_checkpoint = None
        # each rank of a sharded run reads its own shards, below
        is_sharded, io = context.processes.is_sharded, self._core.custom_io
        checkpoint = read or load_checkpoint(path, reads_shards=not is_sharded, io=io)
        if is_lightning(checkpoint):
            from trainer_hooks.trainer.restoring.lightning_checkpoint import (
                convert_lightning_checkpoint,
            )

            with restoring_part("loops", path):
                checkpoint = convert_lightning_checkpoint(checkpoint, context, path)
        if context.processes.is_distributed:
            from trainer_hooks.trainer.ranks.gathered_checkpoint import select_rank_state

            with restoring_part("processes", path):
                checkpoint = select_rank_state(checkpoint, context.processes)
        # after `select_rank_state`: the reader looks for this rank's tensors where that puts them
        if context.processes.is_sharded and "shards" in checkpoint.get("trainer_hooks", {}):
            from trainer_hooks.trainer.ranks.sharded_checkpoint import ShardReader

            reader = ShardReader(checkpoint, path, context.processes.global_rank)
            return reader.filled(checkpoint), reader
        return checkpoint, None


def _changes_optimizers(hooks: HookRelay, hook: str, module: Module) -> bool:
    """Return whether anyone may change the optimizers in a hook that follows the weights."""
    return any(
        may_change_optimizers(implementer, hook)
        for implementer in hooks.implementers(hook)
        # the module's own is called before the optimizers are made
        if not (hook == "on_load_checkpoint" and implementer is module)
    )
