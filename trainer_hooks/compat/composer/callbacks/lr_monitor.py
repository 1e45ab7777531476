"""LRMonitor: log the learning rates after each step, under Composer's names."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.watching.due import is_logged

if TYPE_CHECKING:
    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["LRMonitor"]


class LRMonitor(Callback):
    """Log the learning rates after each step, under Composer's names.

    These are `lr-SGD/group0`, `lr-SGD/group1` and so on: the optimizer's class and the number of
    the parameter group. Of several optimizers of one class, the second is `lr-SGD-1`. A rate is
    what the scheduler has set for the step that follows. They go to the loggers each
    `log_every_n_steps` steps.

    `LearningRateMonitor` logs the rates that a step is made with, under Lightning's names, and
    momenta and weight decay too.

    State: none.

    Example::

        from trainer_hooks.compat.composer.callbacks import LRMonitor

        trainer = Trainer(
            max_epochs=2, logger=CSVLogger("logs"), log_every_n_steps=1, callbacks=[LRMonitor()]
        )
        trainer.fit(module, train_loader)
    """

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Log the rates, if they are due."""
        if not is_logged(trainer):
            return
        rates: dict[str, float] = {}
        of_class: Counter[str] = Counter()
        for optimizer in trainer.optimizers:
            kind = type(optimizer).__name__
            name = f"lr-{kind}" + (f"-{of_class[kind]}" if of_class[kind] else "")
            of_class[kind] += 1
            for number, group in enumerate(optimizer.param_groups):
                rates[f"{name}/group{number}"] = float(group["lr"])
        if rates:
            trainer.log_metrics(rates, trainer.progress.batches_stepped - 1)
