"""LimitEvalStepsCallback: a few batches of validations that come between training batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.monitoring import check_choice, check_count
from trainer_hooks.clock import EpochStage

if TYPE_CHECKING:
    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["LimitEvalStepsCallback"]

_WHERE = "LimitEvalStepsCallback"


class LimitEvalStepsCallback(Callback):
    """Take at most so many batches of each loader in validations inside an epoch.

    Together with `StepBasedEvaluationCallback`, or with `val_check_interval`, it keeps a look at
    how the training does cheap, while the validation at the end of an epoch stays whole.

    Args:
        num_eval_steps: how many batches, from 1 on.
        limit_intermediate_only: whether only validations between two training batches are cut
            short; otherwise all validations and tests are.

    Attributes:
        num_eval_steps: as given.
        limit_intermediate_only: as given.

    Raises:
        OptionError: an argument is outside its rule.

    Example::

        callbacks = [StepBasedEvaluationCallback(3), LimitEvalStepsCallback(1)]
        trainer = Trainer(max_epochs=2, callbacks=callbacks)
        trainer.fit(module, train_loader, val_loader)
    """

    def __init__(self, num_eval_steps: int, limit_intermediate_only: bool = True) -> None:
        self.num_eval_steps = check_count("num_eval_steps", num_eval_steps, _WHERE, least=1)
        self.limit_intermediate_only: bool = check_choice(
            "limit_intermediate_only", limit_intermediate_only, _WHERE, (True, False)
        )

    def setup(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Cut all evaluations short, if that is wanted."""
        if not self.limit_intermediate_only:
            trainer.limit_batches(self.num_eval_steps, "validate", "test")

    def on_validation_run_start(self, trainer: Trainer, module: Module) -> None:
        """Cut this validation short, if it is one between two batches."""
        if self.limit_intermediate_only and trainer.progress.stage is EpochStage.BATCHES:
            trainer.limit_validation(self.num_eval_steps)
