"""StepBasedEvaluationCallback: a validation after every so many training batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.monitoring import check_count

if TYPE_CHECKING:
    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["StepBasedEvaluationCallback"]

_WHERE = "StepBasedEvaluationCallback"


class StepBasedEvaluationCallback(Callback):
    """Validate after every so many batches, besides the validation at the end of each epoch.

    Batches are counted over all epochs. A validation that falls on an epoch's last batch is the
    epoch's own. `Trainer(val_check_interval=...)` sets the trainer's validations themselves; this
    adds to them. Their metrics are logged like those of any validation.

    Args:
        eval_every_n_steps: how many batches lie between two, from 1 on.

    Attributes:
        eval_every_n_steps: as given.

    Raises:
        OptionError: the number is none from 1 on.

    Example::

        trainer = Trainer(max_epochs=2, callbacks=[StepBasedEvaluationCallback(3)])
        trainer.fit(module, train_loader, val_loader)
    """

    def __init__(self, eval_every_n_steps: int) -> None:
        self.eval_every_n_steps = check_count(
            "eval_every_n_steps", eval_every_n_steps, _WHERE, least=1
        )

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Ask for a validation, if it is time."""
        if trainer.progress.batches_completed % self.eval_every_n_steps == 0:
            trainer.request_validation()
