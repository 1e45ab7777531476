"""Composer's events at each hook of trainer_hooks, and how they differ from Composer's own."""

from __future__ import annotations

from itertools import chain

EVENTS: dict[str, tuple[str, ...]] = {
    "on_after_configure_model": ("init",),
    "on_before_load": ("before_load",),
    "on_after_load": ("after_load",),
    "on_fit_start": ("fit_start",),
    "on_train_epoch_start": ("iteration_start", "epoch_start"),
    "on_before_dataloader": ("before_dataloader",),
    "on_after_dataloader": ("after_dataloader",),
    "on_train_batch_start": ("batch_start", "before_forward"),
    "on_before_train_batch": ("before_train_batch", "before_forward"),
    "on_before_forward": ("before_forward",),
    "on_after_forward": ("after_forward",),
    "on_before_loss": ("before_loss",),
    "on_after_loss": ("after_loss",),
    "on_before_backward": ("after_forward", "before_loss", "after_loss", "before_backward"),
    "on_after_backward": ("after_backward",),
    "on_after_train_batch": ("after_train_batch",),
    "on_train_batch_end": ("batch_end",),
    "on_batch_checkpoint": ("batch_checkpoint",),
    "on_train_batches_end": ("before_dataloader", "epoch_end"),
    "on_epoch_checkpoint": ("epoch_checkpoint",),
    "on_iteration_end": ("iteration_end",),
    "on_iteration_checkpoint": ("iteration_checkpoint",),
    "on_fit_end": ("fit_end",),
    "on_validation_run_start": ("eval_before_all",),
    "on_validation_batch_start": (
        "eval_end",
        "eval_start",
        "eval_batch_start",
        "eval_before_forward",
    ),
    "on_validation_before_forward": ("eval_before_forward",),
    "on_validation_after_forward": ("eval_after_forward",),
    "on_validation_batch_end": ("eval_after_forward", "eval_batch_end"),
    "on_validation_end": ("eval_end",),
    "on_validation_run_end": ("eval_after_all",),
    "on_evaluation_run_start": ("eval_standalone_start",),
    "on_evaluation_run_end": ("eval_standalone_end",),
    "on_test_batch_start": ("eval_end", "eval_start", "eval_batch_start", "eval_before_forward"),
    "on_test_batch_end": ("eval_after_forward", "eval_batch_end"),
    "on_test_end": ("eval_end",),
    "on_predict_start": ("predict_start",),
    "on_predict_batch_start": ("predict_batch_start", "predict_before_forward"),
    "on_predict_before_forward": ("predict_before_forward",),
    "on_predict_after_forward": ("predict_after_forward",),
    "on_predict_batch_end": ("predict_after_forward", "predict_batch_end"),
    "on_predict_end": ("predict_end",),
    "on_close": ("close",),
    "on_post_close": ("post_close",),
}
"""The events that fire at each hook, in order.

The events of the forward and the loss are listed twice: a module with its own `training_step` has
no hooks for them, so there they fire right before and after the step. `eval_end` is listed twice
too: an evaluation of several loaders closes one when the next begins.
"""

RUN_EVENT_NAMES = frozenset(chain.from_iterable(EVENTS.values())) - {"close", "post_close"}
"""The events that a callback's `run_event` receives: not `close` and `post_close`."""

BATCH_EVENTS = RUN_EVENT_NAMES & frozenset(
    chain.from_iterable(
        EVENTS[hook]
        for hook in (
            "on_after_dataloader", "on_train_batch_start", "on_before_train_batch",
            "on_before_backward", "on_after_backward", "on_after_train_batch",
            "on_train_batch_end", "on_batch_checkpoint",
        )
    )
)  # fmt: skip
"""Events that fire for each training batch: a callback that has one needs every batch counted."""

_IN_STEP = frozenset(EVENTS["on_before_backward"]) | {"after_backward", "after_train_batch"}

EVENTS_WITH_BATCH = _IN_STEP | {"before_train_batch", "before_forward"}
"""Events at which `state.batch` is set although their hooks receive no batch."""

EVENTS_WITH_LOSS = _IN_STEP | {"batch_end"}
"""Events at which `state.outputs` and `state.loss` are set although their hooks receive neither."""

DECLARED: dict[str, str] = {
    "init": "in the first run, once the model is on its device. The state has optimizers from "
    "`fit_start` on, when a fit has made them",
    "before_dataloader": "with `accumulate_grad_batches` once for each batch of ours, so several "
    "times in a window, which is Composer's batch. A resume skips batches without firing it",
    "after_dataloader": "with `accumulate_grad_batches` once for each batch of ours",
    "batch_start": "`state.batch` is the first batch of the window; its batches are never joined",
    "after_train_batch": "`state.batch` is the last batch of the window",
    "batch_end": "`state.batch` is the last batch of the window",
    "before_forward": "for a module with its own `training_step`, before the step",
    "after_forward": "for a module with its own `training_step`, after the step, without outputs",
    "before_loss": "for a module with its own `training_step`, after the step",
    "after_loss": "for a module with its own `training_step`, after the step, with the loss of the "
    "backward: divided by the batches of the window, and scaled",
    "eval_end": "in several processes after the last of several loaders, each with its label and "
    "timestamp, since their metrics are reduced then",
    "eval_after_forward": "for a module with its own `validation_step`, with what the step "
    "returned",
    "epoch_end": "as in Composer, not for an epoch that a stop breaks off",
    "fit_end": "after the last evaluation; in Composer before one that is due because the training "
    "ends inside an epoch",
    "close": "by `trainer.close()`, or when the trainer is garbage-collected or Python exits",
    "post_close": "as `close`",
}
"""How an event differs from Composer's own Trainer, by event; the documentation prints it."""
