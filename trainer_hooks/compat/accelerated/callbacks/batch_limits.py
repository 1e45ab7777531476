"""Callbacks of pytorch-accelerated that limit batches, or validate every n batches."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from trainer_hooks._options import FLAG, option_rules, whole_number
from trainer_hooks.callback import Callback
from trainer_hooks.clock.progress import EpochStage
from trainer_hooks.compat.accelerated.built_in_callback import built_in

if TYPE_CHECKING:
    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module

__all__ = ["LimitBatchesCallback", "LimitEvalStepsCallback", "StepBasedEvaluationCallback"]


@partial(built_in, works_anyway_at=("on_training_run_start", "on_evaluation_run_start"))
class LimitBatchesCallback(Callback):
    """Run at most a number of batches in each epoch, validation, test and prediction.

    Use it to try out a training. It overrides the trainer's `limit_train_batches` and its
    counterparts where those are shares or larger numbers. Unlike `Trainer(fast_dev_run=...)` it
    leaves logging and checkpoints on. It has no effect if added in the middle of a run.

    Args:
        num_batches: the number of batches, at least 1.

    Attributes:
        num_batches: as given.

    Raises:
        OptionError: the number is below 1 or no integer.

    Example::

        from trainer_hooks.compat.accelerated.callbacks import LimitBatchesCallback

        trainer = Trainer(max_epochs=2, callbacks=[LimitBatchesCallback(2)])
        trainer.fit(module, train_loader, val_loader)
        print(trainer.global_step)
    """

    @option_rules(num_batches=whole_number(1))
    def __init__(self, num_batches: int) -> None:
        self.num_batches = num_batches

    def setup(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Set the limit before the loaders are set up."""
        # in each run anew, since a limit holds for the run that is being set up
        trainer.limit_batches(self.num_batches)


@partial(built_in, works_anyway_at=("on_eval_epoch_start", "on_eval_epoch_end"))
class LimitEvalStepsCallback(Callback):
    """Limit the batches of each loader in validations inside an epoch.

    Together with `StepBasedEvaluationCallback`, or with `val_check_interval`, it keeps frequent
    validations cheap, while the validation at the end of an epoch stays whole.

    Args:
        num_eval_steps: the number of batches, at least 1.
        limit_intermediate_only: whether only validations between two training batches are limited;
            otherwise all validations and tests are.

    Attributes:
        num_eval_steps: as given.
        limit_intermediate_only: as given.

    Raises:
        OptionError: an argument is outside its rule.

    Example::

        from trainer_hooks.compat.accelerated.callbacks import (
            LimitEvalStepsCallback,
            StepBasedEvaluationCallback,
        )

        callbacks = [StepBasedEvaluationCallback(3), LimitEvalStepsCallback(1)]
        trainer = Trainer(max_epochs=2, callbacks=callbacks)
        trainer.fit(module, train_loader, val_loader)
    """

    @option_rules(num_eval_steps=whole_number(1), limit_intermediate_only=FLAG)
    def __init__(self, num_eval_steps: int, limit_intermediate_only: bool = True) -> None:
        self.num_eval_steps = num_eval_steps
        self.limit_intermediate_only = limit_intermediate_only

    def setup(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Limit all validations and tests, unless only intermediate validations are limited."""
        if not self.limit_intermediate_only:
            trainer.limit_batches(self.num_eval_steps, "validate", "test")

    def on_validation_run_start(self, trainer: Trainer, module: Module) -> None:
        """Limit this validation if it runs between two training batches."""
        # in the validation at the epoch's end the stage is VALIDATING
        if self.limit_intermediate_only and trainer.progress.stage is EpochStage.BATCHES:
            trainer.limit_validation(self.num_eval_steps)


@partial(built_in, works_at={"on_train_step_end": ("on_train_batch_end",)})
class StepBasedEvaluationCallback(Callback):
    """Validate after every n training batches, besides the validation at the end of each epoch.

    Batches are counted over all epochs. A validation that falls on an epoch's last batch is the
    epoch's own. `Trainer(val_check_interval=...)` sets the trainer's own validations; this callback
    adds validations. Their metrics are logged like those of any validation.

    Args:
        eval_every_n_steps: the number of batches between two validations, at least 1.

    Attributes:
        eval_every_n_steps: as given.

    Raises:
        OptionError: the number is below 1 or no integer.

    Example::

        from trainer_hooks.compat.accelerated.callbacks import StepBasedEvaluationCallback

        trainer = Trainer(max_epochs=2, callbacks=[StepBasedEvaluationCallback(3)])
        trainer.fit(module, train_loader, val_loader)
    """

    @option_rules(eval_every_n_steps=whole_number(1))
    def __init__(self, eval_every_n_steps: int) -> None:
        self.eval_every_n_steps = eval_every_n_steps

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Request a validation after every n-th batch."""
        # a count over all epochs, which a resume continues
        if trainer.progress.batches_completed % self.eval_every_n_steps == 0:
            trainer.request_validation()
