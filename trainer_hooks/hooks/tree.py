"""The loop as one nested declaration: where each hook fires, and inside of what.

The docs page, `trainer.describe_hooks()` and `trainer-hooks hooks NAME` are made from it by
`places.py`, and a test holds recorded runs against it.

It shows automatic optimization. With manual optimization the hooks of the step fire where the
module's `training_step` calls what they are about; an optimizer that evaluates the loss several
times, such as LBFGS, fires them at each evaluation.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["ANY_MOMENT", "FUNCTIONS", "LOOP", "Block", "Runs"]


class Runs(Enum):
    """How often what stands in a block runs, each time the block is come to."""

    ONCE = "once"
    MAYBE = "maybe"
    """Once or not at all."""
    REPEATEDLY = "repeatedly"
    """Any number of times, none included."""


@dataclass(frozen=True, slots=True)
class Block:
    """A line of the loop that is no hook, and what runs inside of it.

    Attributes:
        text: what it says.
        steps: names of hooks, and blocks, in the order in which they run.
        runs: how often they do.
        is_told_once: whether a rendering shows the steps where the block first stands, and refers
            to that where it stands again.
    """

    text: str
    steps: tuple[str | Block, ...]
    runs: Runs = Runs.ONCE
    is_told_once: bool = False


def _if(text: str, *steps: str | Block) -> Block:
    return Block(text, steps, Runs.MAYBE)


def _each(text: str, *steps: str | Block) -> Block:
    return Block(text, steps, Runs.REPEATEDLY)


_PREPARATION = (
    "setup",
    "on_configure_model",
    "on_after_configure_model",
    "on_before_load",
    _if("if a checkpoint is loaded", "on_load_checkpoint"),
    "on_after_load",
)

_ENDING = (
    _if(
        "if an exception ended it",
        _if("if it was Ctrl-C", "on_keyboard_interrupt"),
        "on_exception",
    ),
    Block("whatever happened", ("teardown",)),
)

_VALIDATION = Block(
    "the validation loop",
    (
        "on_validation_start",
        "on_epoch_start",
        "on_validation_epoch_start",
        _each(
            "for each loader, for each batch",
            "on_validation_batch_start",
            _if(
                "if the module has no validation_step, around its forward and after its loss",
                "on_validation_before_forward",
                "on_validation_after_forward",
                "on_validation_after_loss",
            ),
            "on_validation_batch_end",
        ),
        "on_validation_epoch_end",
        "on_epoch_end",
        "on_validation_end",
    ),
    is_told_once=True,
)

_VALIDATION_RUN = ("on_validation_run_start", _VALIDATION, "on_validation_run_end")

_TEST = Block(
    "the test loop",
    (
        "on_test_start",
        "on_epoch_start",
        "on_test_epoch_start",
        _each("for each loader, for each batch", "on_test_batch_start", "on_test_batch_end"),
        "on_test_epoch_end",
        "on_epoch_end",
        "on_test_end",
    ),
)

_PREDICTION = Block(
    "the prediction loop",
    (
        "on_predict_start",
        "on_epoch_start",
        "on_predict_epoch_start",
        _each(
            "for each loader, for each batch",
            "on_predict_batch_start",
            _if(
                "if the module has no predict_step, around its forward",
                "on_predict_before_forward",
                "on_predict_after_forward",
            ),
            "on_predict_batch_end",
        ),
        "on_predict_epoch_end",
        "on_epoch_end",
        "on_predict_end",
    ),
)

_STEP = Block(
    "at the end of a window, around the optimizer's step",
    ("on_before_optimizer_step", "on_after_train_batch", "on_after_optimizer_step"),
    Runs.MAYBE,
    is_told_once=True,
)

_BATCH = _each(
    "for each batch",
    "on_before_dataloader",
    "on_after_dataloader",
    _if(
        "if the loader gave one",
        "on_train_batch_start",
        _if("at the start of a window", "on_before_train_batch", "on_before_zero_grad"),
        _each(
            "unless it is skipped: for the batch, or for each part of microbatch_size samples",
            _if(
                "if the module has no training_step, around its forward and loss",
                "on_before_forward",
                "on_after_forward",
                "on_before_loss",
                "on_after_loss",
            ),
            "on_before_backward",
            "on_after_backward",
        ),
        _STEP,
        "on_train_batch_end",
        _if("if a validation is due on this batch", *_VALIDATION_RUN),
        "on_batch_checkpoint",
    ),
)

_EPOCH = _each(
    "for each epoch (a resumed run enters it where the checkpoint was saved)",
    _if("if a cycle of iteration_length epochs begins", "on_iteration_start"),
    "on_epoch_start",
    "on_train_epoch_start",
    _BATCH,
    _if("if the loader ended early, inside a window", _STEP),
    "on_train_batches_end",
    _if("if a validation is due at the end of the epoch", *_VALIDATION_RUN),
    "on_train_epoch_end",
    "on_epoch_end",
    "on_epoch_checkpoint",
    _if(
        "if the cycle ends, or the training ends inside one",
        "on_iteration_end",
        "on_iteration_checkpoint",
    ),
)

_FIT = Block(
    "fit",
    (
        *_PREPARATION,
        "on_fit_start",
        _if(
            "if there is a sanity check",
            "on_sanity_check_start",
            _VALIDATION,
            "on_sanity_check_end",
        ),
        "on_train_start",
        _EPOCH,
        "on_train_end",
        "on_fit_end",
        *_ENDING,
    ),
)


def _run_of(fn: str, *steps: str | Block) -> Block:
    return Block(fn, (*_PREPARATION, *steps, *_ENDING))


FUNCTIONS = {
    "fit": _FIT,
    "validate": _run_of(
        "validate", "on_evaluation_run_start", _VALIDATION, "on_evaluation_run_end"
    ),
    "test": _run_of("test", "on_evaluation_run_start", _TEST, "on_evaluation_run_end"),
    "predict": _run_of("predict", _PREDICTION),
}
"""What each of the trainer's functions runs."""

ANY_MOMENT = Block(
    "at any moment",
    (
        _if("when a checkpoint is saved", "on_save_checkpoint", "on_checkpoint_saved"),
        _if("when metrics are handed to the loggers", "on_log"),
        _if("when something raised StopTraining", "on_stop_training_error"),
    ),
    Runs.REPEATEDLY,
)
"""What has no place of its own in the loop."""

LOOP = (
    Block("Trainer(...)", ("on_init_start", "on_init_end")),
    *FUNCTIONS.values(),
    ANY_MOMENT,
    Block("trainer.close()", ("on_close", "on_post_close")),
)
"""Everything, in the order of a trainer's life."""
