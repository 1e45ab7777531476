"""The hooks of a bar that hands on to a display: such a bar lists those that it listens to."""

# ruff: noqa: ARG001 - a hook takes all its arguments, used or not
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.callbacks.progress.bar_drawing import Phase

if TYPE_CHECKING:
    from trainer_hooks.callbacks.progress.display import DrawnBar
    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = [
    "on_exception",
    "on_predict_end",
    "on_predict_start",
    "on_sanity_check_end",
    "on_sanity_check_start",
    "on_test_end",
    "on_test_start",
    "on_train_batch_end",
    "on_train_batches_end",
    "on_train_end",
    "on_train_epoch_end",
    "on_train_epoch_start",
    "on_train_start",
    "on_validation_end",
    "on_validation_start",
    "teardown",
]


def on_sanity_check_start(bar: DrawnBar, trainer: Trainer, module: Module) -> None:
    """Open the bar of the sanity check."""
    totals = trainer.num_sanity_val_batches
    bar.display.begin(Phase.SANITY, bar.sanity_check_description, totals)


def on_sanity_check_end(bar: DrawnBar, trainer: Trainer, module: Module) -> None:
    """Close it without a trace."""
    bar.display.end(trainer, module, Phase.SANITY)


def on_train_start(bar: DrawnBar, trainer: Trainer, module: Module) -> None:
    """Open the bar where a run is resumed inside an epoch, whose start is not told again."""
    bar.display.go_on_inside(trainer)


def on_train_epoch_start(bar: DrawnBar, trainer: Trainer, module: Module) -> None:
    """Open the bar of an epoch."""
    bar.display.begin_epoch(trainer)


def on_train_batch_end(
    bar: DrawnBar,
    trainer: Trainer,
    module: Module,
    outputs: dict[str, Any],
    batch: Any,
    batch_idx: int,
) -> None:
    """Draw, if it is time."""
    bar.display.count_trained(trainer, module, batch_idx)


def on_train_batches_end(bar: DrawnBar, trainer: Trainer, module: Module) -> None:
    """Draw the last batch, if it could not be known that it would be the last."""
    bar.display.end_batches(trainer, module)


def on_train_epoch_end(bar: DrawnBar, trainer: Trainer, module: Module) -> None:
    """Draw the metrics of the epoch, unless one on a terminal was drawn just now."""
    bar.display.end_epoch(trainer, module)


def on_train_end(bar: DrawnBar, trainer: Trainer, module: Module) -> None:
    """Draw the last state and close the bar."""
    bar.display.end_training(trainer, module)


def on_validation_start(bar: DrawnBar, trainer: Trainer, module: Module) -> None:
    """Open the bar of a validation, below that of the training if there is one."""
    bar.display.begin_validation(trainer)


def on_validation_end(bar: DrawnBar, trainer: Trainer, module: Module) -> None:
    """Close the bar of a validation."""
    bar.display.end_validation(trainer, module)


def on_test_start(bar: DrawnBar, trainer: Trainer, module: Module) -> None:
    """Open the bar of a test."""
    bar.display.begin(Phase.TEST, bar.test_description, trainer.num_test_batches)


def on_test_end(bar: DrawnBar, trainer: Trainer, module: Module) -> None:
    """Draw the last state and close the bar."""
    bar.display.end(trainer, module, Phase.TEST)


def on_predict_start(bar: DrawnBar, trainer: Trainer, module: Module) -> None:
    """Open the bar of a prediction."""
    totals = trainer.num_predict_batches
    bar.display.begin(Phase.PREDICT, bar.predict_description, totals)


def on_predict_end(bar: DrawnBar, trainer: Trainer, module: Module) -> None:
    """Draw the last state and close the bar."""
    bar.display.end(trainer, module, Phase.PREDICT)


def on_exception(bar: DrawnBar, trainer: Trainer, module: Module, exception: BaseException) -> None:
    """Draw how far it came and close all bars, so that they do not stand in the traceback."""
    bar.display.close_all()


def teardown(bar: DrawnBar, trainer: Trainer, module: Module, stage: str) -> None:
    """Close what is open, whatever ended the run."""
    bar.display.close_all()
