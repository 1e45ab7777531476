"""The loop as one nested declaration: where each hook fires, and inside which block.

The docs page, `trainer.describe_hooks()` and `trainer-hooks hooks NAME` are made from it by
this module, and a test compares it with recorded runs.

It shows automatic optimization. With manual optimization the hooks of the step fire where the
module's `training_step` calls the matching method; an optimizer that evaluates the loss several
times, such as LBFGS, fires them at each evaluation.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from trainer_hooks._text import Branch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


class Repetition(Enum):
    """How often the parts of a block run, each time the loop reaches the block."""

    ONCE = "once"
    MAYBE = "maybe"
    """Once or not at all."""
    REPEATEDLY = "repeatedly"
    """Any number of times, or not at all."""


@dataclass(frozen=True, slots=True)
class LoopBlock:
    """A line of the loop that is no hook, with the hooks and blocks inside it.

    Attributes:
        text: the line.
        parts: names of hooks, and blocks, in the order in which they run.
        runs: how often the parts run.
        is_shown_once: whether a rendering shows the parts where the block appears first only, and
            refers to that place where it appears again.
    """

    text: str
    parts: tuple[str | LoopBlock, ...]
    runs: Repetition = Repetition.ONCE
    is_shown_once: bool = False


def _if(text: str, *parts: str | LoopBlock) -> LoopBlock:
    return LoopBlock(text, parts, Repetition.MAYBE)


def _each(text: str, *parts: str | LoopBlock) -> LoopBlock:
    return LoopBlock(text, parts, Repetition.REPEATEDLY)


_PREPARATION = (
    "setup",
    "on_configure_model",
    "on_after_configure_model",
    "on_before_load",
    _if("if a checkpoint is loaded", "on_before_restore", "on_load_checkpoint"),
    "on_after_load",
)

_ENDING = (
    _if(
        "if an exception ended it",
        _if("if it was Ctrl-C", "on_keyboard_interrupt"),
        "on_exception",
    ),
    LoopBlock("whatever happened", ("teardown",)),
)

_VALIDATION = LoopBlock(
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
    is_shown_once=True,
)

_VALIDATION_RUN = ("on_validation_run_start", _VALIDATION, "on_validation_run_end")

_TEST = LoopBlock(
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

_PREDICTION = LoopBlock(
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

_STEP = LoopBlock(
    "at the end of a window, around the optimizer's step",
    ("on_before_optimizer_step", "on_after_train_batch", "on_after_optimizer_step"),
    Repetition.MAYBE,
    is_shown_once=True,
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
        _if(
            "unless trainer.end_epoch() ends the epoch with this batch",
            _if("if a validation is due on this batch", *_VALIDATION_RUN),
            "on_batch_checkpoint",
        ),
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

_FIT = LoopBlock(
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


def _run_of(fn: str, *parts: str | LoopBlock) -> LoopBlock:
    return LoopBlock(fn, (*_PREPARATION, *parts, *_ENDING))


FUNCTIONS = {
    "fit": _FIT,
    "validate": _run_of(
        "validate", "on_evaluation_run_start", _VALIDATION, "on_evaluation_run_end"
    ),
    "test": _run_of("test", "on_evaluation_run_start", _TEST, "on_evaluation_run_end"),
    "predict": _run_of("predict", _PREDICTION),
}
"""The blocks of fit, validate, test and predict, by the name of the trainer's method."""

ANY_MOMENT = LoopBlock(
    "at any moment",
    (
        _if("when a checkpoint is saved", "on_save_checkpoint", "on_checkpoint_saved"),
        _if("when metrics are handed to the loggers", "on_log"),
        _if("when something raised StopTraining", "on_stop_training_error"),
    ),
    Repetition.REPEATEDLY,
)
"""The hooks that have no fixed position in the loop."""

LOOP = (
    LoopBlock("Trainer(...)", ("on_init_start", "on_init_end")),
    *FUNCTIONS.values(),
    ANY_MOMENT,
    LoopBlock("trainer.close()", ("on_close", "on_post_close")),
)
"""All blocks, in the order of a trainer's life."""


@dataclass(frozen=True, slots=True)
class HookPosition:
    """A position in the loop at which a hook fires.

    Attributes:
        path: the texts of the blocks around the hook, the outermost first.
        above: the hook that fires before it in the same part of the loop, or an empty string.
        below: the hook that fires after it, or an empty string.
    """

    path: tuple[str, ...]
    above: str
    below: str


def positions_of(hook: str) -> tuple[HookPosition, ...]:
    """Return every position at which `hook` fires; none for a hook that is not in the loop."""
    positions = []
    for part in LOOP:
        lines = list(_lines(part, ()))
        names = ["", *(name for name, _ in lines), ""]
        for index, (name, path) in enumerate(lines):
            if name == hook:
                positions.append(HookPosition(path, names[index], names[index + 2]))
    return tuple(positions)


def hooks_in(parts: Sequence[str | LoopBlock]) -> Iterator[str]:
    """Yield the name of each hook in `parts` and the blocks below, in order, with repetitions."""
    for part in parts:
        if isinstance(part, LoopBlock):
            yield from hooks_in(part.parts)
        else:
            yield part


def tree_branches(
    parts: Sequence[str | LoopBlock], leaf: Callable[[str], Branch] = Branch
) -> tuple[Branch, ...]:
    """Return hooks and blocks as the branches of a tree to print.

    Args:
        parts: hooks and blocks, `LOOP` or a part of it.
        leaf: makes the branch of a hook. A block is faint if all its branches are.
    """
    shown: set[LoopBlock] = set()

    def branch(part: str | LoopBlock) -> Branch:
        if isinstance(part, str):
            return leaf(part)
        # by value: one block that stands in several places is one line each time
        if part in shown:
            return Branch(f"{part.text} (as above)", is_faint=is_faint[part])
        # before the block is noted as shown, since a block is faint by what is inside it
        below = tuple(map(branch, part.parts))
        is_faint[part] = all(line.is_faint for line in below)
        if part.is_shown_once:
            shown.add(part)
        return Branch(part.text, below, is_faint[part])

    is_faint: dict[LoopBlock, bool] = {}
    return tuple(map(branch, parts))


def _lines(block: LoopBlock, path: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    here = (*path, block.text)
    for part in block.parts:
        if isinstance(part, LoopBlock):
            yield from _lines(part, here)
        else:
            yield part, here
