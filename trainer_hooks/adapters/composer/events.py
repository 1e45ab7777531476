"""Which events of Composer are delivered at which hook of trainer_hooks."""

from __future__ import annotations

from itertools import chain

__all__ = ["DECLARED", "EVENTS", "EVENT_NAMES", "EVERY_BATCH", "LOADED", "STATED"]

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
    "on_test_batch_start": (
        "eval_end",
        "eval_start",
        "eval_batch_start",
        "eval_before_forward",
    ),
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
"""The events at each hook, in their order. Those of the forward and the loss stand twice: a module
with a step of its own has no such hooks, and there they come right before and after it. So does
`eval_end`: a loader that is followed by another ends when that begins."""

EVENT_NAMES = frozenset(chain.from_iterable(EVENTS.values())) - {"close", "post_close"}

EVERY_BATCH = EVENT_NAMES & frozenset(
    chain.from_iterable(
        EVENTS[hook]
        for hook in (
            "on_after_dataloader", "on_train_batch_start", "on_before_train_batch",
            "on_before_backward", "on_after_backward", "on_after_train_batch",
            "on_train_batch_end", "on_batch_checkpoint",
        )
    )
)  # fmt: skip
"""Events of batches: a guest that hears one has its batches counted one by one."""

_IN_STEP = frozenset(EVENTS["on_before_backward"]) | {"after_backward", "after_train_batch"}

LOADED = _IN_STEP | {"before_train_batch", "before_forward"}
"""Events at which the state has the batch, though their hooks do not bring it."""

STATED = _IN_STEP | {"batch_end"}
"""Events at which it has the outputs and the loss, likewise."""

DECLARED: dict[str, str] = {
    "init": "in the first run, when the model is on its device: before that there is none. The "
    "state has optimizers and loaders from `fit_start` on, when a fit has made them",
    "before_dataloader": "with `accumulate_grad_batches` once for each batch of ours, several "
    "times in a window, which is Composer's batch. A resume passes over batches without it",
    "after_dataloader": "with `accumulate_grad_batches` once for each batch of ours",
    "batch_start": "`state.batch` is the first batch of the window: it is never in one piece here",
    "after_train_batch": "`state.batch` is the last batch of the window",
    "batch_end": "`state.batch` is the last batch of the window",
    "before_forward": "of a module with its own `training_step`, before that",
    "after_forward": "of a module with its own `training_step`, after it and without its outputs",
    "before_loss": "of a module with its own `training_step`, after it",
    "after_loss": "of a module with its own `training_step`, after it, with the loss as backward "
    "has it: divided by the batches of the window, and scaled",
    "eval_end": "in several processes after the last of several loaders, each with its label and "
    "timestamp: their metrics are known then",
    "eval_after_forward": "of a module with its own `validation_step`, with what that returned",
    "epoch_end": "an epoch that a stop breaks off does not end, as there",
    "fit_end": "after the last evaluation. Where `max_steps` ends an epoch in its middle there is "
    "none, and in Composer one more; a stop of a callback is followed by one, as there",
    "close": "by `trainer.close()`, or when the trainer is collected or Python ends",
    "post_close": "as `close`",
}
"""What is not the same at an event, and why."""
