"""WSDCheckpointCallback: save before and after each decay of a warmup-stable-decay schedule."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from trainer_hooks._options import answers_keywords
from trainer_hooks.callbacks.base import is_real_fit
from trainer_hooks.callbacks.saving.load_checkpoint import restore_weights_and_optimizers
from trainer_hooks.callbacks.saving.saver import SavePlan, Saver
from trainer_hooks.callbacks.saving.saver_options import check_dirpath, check_flags
from trainer_hooks.errors import OptimizationError, OptionError
from trainer_hooks.hooks.spec import keeps_optimizers

if TYPE_CHECKING:
    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module

_WHERE = "WSDCheckpointCallback"
_DECAY = 0.1


class WSDCheckpointCallback(Saver):
    """Save before and after each phase in which a schedule decays the learning rate.

    A schedule of warmup, stable phase and decay (WSD) gives a model at the end of each decay; a
    longer training resumes from before it. A scheduler of the run must have
    `get_checkpoint_steps()`, which returns the steps at which decays end, and may have
    `decay_phase_ratio`, the fraction of a phase that its decay takes, by default 0.1. Steps are
    optimizer steps.

    Before a decay a full checkpoint is written, `checkpoint_900_wsd_pre_decay.ckpt`; after it,
    `checkpoint_1000_wsd_post_decay.ckpt`. Start a longer schedule from either by
    `initial_checkpoint`; to resume the very same training, use `fit(ckpt_path=...)`.

    Args:
        save_dir: the folder.
        save_optimizer: whether files after a decay hold more than weights: optimizers, schedulers,
            counters and callbacks.
        save_scheduler: likewise; they are saved together if one of the two is True.
        initial_checkpoint: a file whose weights, optimizer and scheduler states a new training
            begins with.

    Attributes:
        save_optimizer: as passed.
        save_scheduler: as passed.
        initial_checkpoint: as passed.

    Raises:
        OptionError: an argument is outside its rule.
        OptimizationError: in a run, no scheduler has `get_checkpoint_steps()`.

    State: the last file, and the step at which it was saved.

    Example::

        class Decays(torch.optim.lr_scheduler.LambdaLR):
            def get_checkpoint_steps(self):
                return [10]

        class Decaying(type(module)):
            def configure_optimizers(self):
                optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
                scheduler = Decays(optimizer, lambda step: 1.0 if step < 9 else 0.1)
                return [optimizer], [{"scheduler": scheduler, "interval": "step"}]

        trainer = Trainer(max_epochs=2, callbacks=[WSDCheckpointCallback("decays")])
        trainer.fit(Decaying(), train_loader, val_loader)
    """

    @answers_keywords
    def __init__(
        self,
        save_dir: str | os.PathLike[str] = "checkpoints",
        save_optimizer: bool = True,
        save_scheduler: bool = True,
        initial_checkpoint: str | os.PathLike[str] | None = None,
    ) -> None:
        check_flags(_WHERE, save_optimizer=save_optimizer, save_scheduler=save_scheduler)
        if initial_checkpoint is not None and not isinstance(initial_checkpoint, str | os.PathLike):
            raise OptionError(
                f"initial_checkpoint {initial_checkpoint!r} of {_WHERE}: it must be the path of a "
                "checkpoint. Pass one, or None."
            )
        super().__init__(check_dirpath(save_dir, _WHERE))
        self.save_optimizer = save_optimizer
        self.save_scheduler = save_scheduler
        self.initial_checkpoint = initial_checkpoint
        self._starts: frozenset[int] = frozenset()
        self._ends: frozenset[int] = frozenset()

    @keeps_optimizers
    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Read the phases from the scheduler, and load the initial checkpoint of a new training."""
        super().on_fit_start(trainer, module)
        if self.initial_checkpoint is not None and trainer.progress.is_new_training:
            restore_weights_and_optimizers(trainer, module, str(self.initial_checkpoint))
        scheduler = _wsd_scheduler(trainer)
        ends = sorted(int(step) for step in scheduler.get_checkpoint_steps())
        ratio = float(getattr(scheduler, "decay_phase_ratio", _DECAY))
        # a period reaches from the end of one decay to the end of the next
        begins = [0, *ends[:-1]]
        self._ends = frozenset(ends)
        self._starts = frozenset(
            end - max(1, int(ratio * (end - begin)))
            for begin, end in zip(begins, ends, strict=False)
        )

    def on_batch_checkpoint(self, trainer: Trainer, module: Module) -> None:
        """Save if a decay is about to begin, or has ended."""
        step = trainer.progress.batches_stepped
        if step == self.store.ranking.saved_step or not is_real_fit(trainer):
            return
        if step in self._starts:
            self._save(trainer, f"checkpoint_{step}_wsd_pre_decay", step, weights_only=False)
        elif step in self._ends:
            weights_only = not (self.save_optimizer or self.save_scheduler)
            self._save(trainer, f"checkpoint_{step}_wsd_post_decay", step, weights_only)

    def save_now(self, trainer: Trainer, module: Module) -> None:
        """Save because `trainer.request_checkpoint()` was called."""
        if is_real_fit(trainer):
            step = trainer.progress.batches_stepped
            # the saved step stays: the scheduled save of this step may still come
            self._save(
                trainer, f"checkpoint_{step}", self.store.ranking.saved_step, weights_only=False
            )

    def _save(self, trainer: Trainer, name: str, step: int, weights_only: bool) -> None:
        ranking, path = self.store.ranking.copy(), self.format_checkpoint_name({}, name)
        ranking.last_model_path, ranking.saved_step = path, step
        self.save_weights_only = weights_only  # the store reads this option at each save
        self.store.write(trainer, SavePlan((path,)), ranking)


def _wsd_scheduler(trainer: Trainer) -> Any:
    """Return the scheduler that has `get_checkpoint_steps()`.

    Raises:
        OptimizationError: none has.
    """
    for config in trainer.lr_scheduler_configs:
        if callable(getattr(config.scheduler, "get_checkpoint_steps", None)):
            return config.scheduler
    names = [type(config.scheduler).__name__ for config in trainer.lr_scheduler_configs]
    raise OptimizationError(
        f"schedulers {', '.join(names) or 'none'} of a run with {_WHERE}: one of them must have "
        "get_checkpoint_steps(), which returns the steps at which decays end. Return such a "
        "scheduler from configure_optimizers, or take the callback out."
    )
