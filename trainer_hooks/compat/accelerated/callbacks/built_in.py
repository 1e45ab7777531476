"""Callbacks of trainer_hooks as those of pytorch-accelerated that they are named for."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from trainer_hooks import callbacks
from trainer_hooks.compat.accelerated.built_in_callback import built_in
from trainer_hooks.compat.accelerated.callbacks.stopping import TerminateOnNaNCallback

if TYPE_CHECKING:
    from trainer_hooks.callback import Callback
    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module

__all__ = [
    "ConvertSyncBatchNormCallback",
    "LogMetricsCallback",
    "MoveModulesToDeviceCallback",
    "PrintMetricsCallback",
    "PrintProgressCallback",
    "ProgressBarCallback",
    "WSDCheckpointCallback",
    "get_default_callbacks",
]

_PACKAGE = "trainer_hooks.compat.accelerated.callbacks"


class _PrintProgress(callbacks.PrintProgressCallback):
    __doc__ = callbacks.PrintProgressCallback.__doc__

    def on_validation_start(self, trainer: Trainer, module: Module) -> None:
        """Print that an evaluation of the training or of `evaluate` begins."""
        if not trainer.sanity_checking:
            self._print(trainer, "evaluation begins")


_RUN_STARTS = ("on_training_run_start", "on_evaluation_run_start")

ConvertSyncBatchNormCallback = built_in(
    callbacks.ConvertSyncBatchNormCallback, _PACKAGE, works_anyway_at=_RUN_STARTS[:1]
)
MoveModulesToDeviceCallback = built_in(
    callbacks.MoveModulesToDeviceCallback, _PACKAGE, works_anyway_at=_RUN_STARTS
)
PrintMetricsCallback = built_in(
    callbacks.PrintMetricsCallback,
    _PACKAGE,
    works_at={
        "on_train_epoch_end": ("on_epoch_checkpoint",),
        "on_eval_epoch_end": ("on_validation_end", "on_test_end"),
    },
    works_at_once=True,
)
PrintProgressCallback = built_in(
    _PrintProgress,
    _PACKAGE,
    works_at={
        "on_training_run_start": ("on_fit_start",),
        "on_train_epoch_start": ("on_train_epoch_start",),
        "on_eval_epoch_start": ("on_validation_start",),
        "on_training_run_end": ("on_fit_end",),
        "on_evaluation_run_start": ("on_evaluation_run_start",),
        "on_evaluation_run_end": ("on_evaluation_run_end",),
    },
    works_at_once=True,
)
WSDCheckpointCallback = built_in(
    callbacks.WSDCheckpointCallback,
    _PACKAGE,
    works_at={"on_train_step_end": ("on_batch_checkpoint",)},
    works_anyway_at=("on_training_run_start", "on_training_run_end"),
)


@partial(
    built_in,
    works_at={
        "on_train_epoch_start": ("on_train_epoch_start",),
        "on_train_step_end": ("on_train_batch_end",),
        "on_train_epoch_end": ("on_train_batches_end", "on_train_epoch_end"),
        "on_eval_step_end": ("on_validation_batch_end", "on_test_batch_end"),
        "on_eval_epoch_end": ("on_validation_end", "on_test_end"),
    },
    works_anyway_at=("on_eval_epoch_start",),
)
class ProgressBarCallback(callbacks.TQDMProgressBar):
    """Show progress with tqdm, under the name that pytorch-accelerated has for it.

    It is `TQDMProgressBar`, with all that it can do; a bar of an epoch stays on the screen when the
    next one begins.

    Example::

        from trainer_hooks.compat.accelerated.callbacks import ProgressBarCallback

        trainer = Trainer(max_epochs=2, callbacks=[ProgressBarCallback()])
        trainer.fit(module, train_loader, val_loader)
    """

    def __init__(self) -> None:
        super().__init__(leave=True)


# newer releases of pytorch-accelerated have renamed it
LogMetricsCallback = PrintMetricsCallback


def get_default_callbacks(progress_bar: bool = True) -> tuple[type[Callback], ...]:
    """Return the classes of the default callbacks, with the progress bar or without it."""
    return (
        MoveModulesToDeviceCallback,
        TerminateOnNaNCallback,
        PrintProgressCallback,
        *((ProgressBarCallback,) if progress_bar else ()),
        PrintMetricsCallback,
    )
