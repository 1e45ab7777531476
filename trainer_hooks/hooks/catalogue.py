"""The hook catalogue: every hook, in the order in which a run fires them.

This class is the one place where a hook is declared. The relay, the lambda callback, the docs page,
the checks on names and signatures, and the typing all derive from it.

Hooks are called with positional arguments and return None. A "step" is an optimizer step
(`trainer.global_step`); a "window" is the batches whose gradients accumulate into one step; a
"slot" is a moment for saving, one of the `..._checkpoint` hooks. `dataloader_idx` is passed where
there are several loaders.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor
    from torch.optim import Optimizer

    from trainer_hooks.module import Module
    from trainer_hooks.trainer import Trainer

__all__ = ["Hooks"]

_F = TypeVar("_F", bound="Callable[..., None]")


def _known_as(lightning: str = "", composer: str = "", accelerated: str = "") -> Callable[[_F], _F]:
    """Note the names that Lightning, Composer and pytorch-accelerated have for the same moment."""

    def note(hook: _F) -> _F:
        hook.__dict__["known_as"] = (lightning, composer, accelerated)
        return hook

    return note


class Hooks:
    """Empty methods, one a hook. A callback overrides those that it wants."""

    @_known_as(lightning="1.x same")
    def on_init_start(self, trainer: Trainer) -> None:
        """Called early in `Trainer(...)`: callbacks are known, no attribute can be read yet."""

    @_known_as(lightning="1.x same", composer="init", accelerated="on_init_end")
    def on_init_end(self, trainer: Trainer) -> None:
        """Called at the end of `Trainer(...)`: plugins are loaded and the order is fixed."""

    @_known_as(lightning="same")
    def setup(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Called at the start of fit, validate, test and predict; `stage` says which."""

    @_known_as(lightning="1.x on_configure_sharded_model")
    def on_configure_model(self, trainer: Trainer, module: Module) -> None:
        """Called before the module's `configure_model`, which makes large layers."""

    def on_after_configure_model(self, trainer: Trainer, module: Module) -> None:
        """Called when the module is complete and on its device, before optimizers are made."""

    @_known_as(composer="before_load")
    def on_before_load(self, trainer: Trainer, module: Module, path: str | None) -> None:
        """Called before a checkpoint is read, also if there is none (`path` is None)."""

    @_known_as(lightning="same")
    def on_load_checkpoint(
        self, trainer: Trainer, module: Module, checkpoint: dict[str, Any]
    ) -> None:
        """Called while a checkpoint is restored, with all that is in it; the module comes first."""

    @_known_as(composer="after_load")
    def on_after_load(
        self, trainer: Trainer, module: Module, checkpoint: dict[str, Any] | None
    ) -> None:
        """Called when all is restored, or there was nothing to restore (`checkpoint` is None)."""

    @_known_as(lightning="same", composer="fit_start", accelerated="on_training_run_start")
    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Called when fit is ready: model on its device, optimizers made, checkpoint restored."""

    @_known_as(lightning="same")
    def on_sanity_check_start(self, trainer: Trainer, module: Module) -> None:
        """Called before the sanity check: a few validation batches, run before training."""

    @_known_as(lightning="same")
    def on_sanity_check_end(self, trainer: Trainer, module: Module) -> None:
        """Called after the sanity check."""

    @_known_as(lightning="same")
    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """Called once in a fit, after the sanity check and before the first epoch."""

    @_known_as(composer="iteration_start")
    def on_iteration_start(self, trainer: Trainer, module: Module) -> None:
        """Called at the start of a cycle of `iteration_length` epochs."""

    @_known_as(lightning="1.x same")
    def on_epoch_start(self, trainer: Trainer, module: Module) -> None:
        """Called at the start of an epoch of any phase: train, validation, test, predict."""

    @_known_as(lightning="same", composer="epoch_start", accelerated="on_train_epoch_start")
    def on_train_epoch_start(self, trainer: Trainer, module: Module) -> None:
        """Called at the start of a training epoch; not again if a run is resumed inside it."""

    @_known_as(composer="before_dataloader")
    def on_before_dataloader(self, trainer: Trainer, module: Module) -> None:
        """Called before the next training batch is taken from the loader."""

    @_known_as(composer="after_dataloader")
    def on_after_dataloader(self, trainer: Trainer, module: Module, batch: Any) -> None:
        """Called with a batch from the loader, not yet on the device; None if there was none."""

    @_known_as(lightning="same", composer="batch_start", accelerated="on_train_step_start")
    def on_train_batch_start(
        self, trainer: Trainer, module: Module, batch: Any, batch_idx: int
    ) -> None:
        """Called when a training batch is on its device, before its step."""

    @_known_as(composer="before_train_batch")
    def on_before_train_batch(self, trainer: Trainer, module: Module) -> None:
        """Called before the first batch of a window, the batches that make one optimizer step."""

    @_known_as(lightning="same")
    def on_before_zero_grad(self, trainer: Trainer, module: Module, optimizer: Optimizer) -> None:
        """Called before gradients are cleared, at the start of a window, before the forward."""

    @_known_as(composer="before_forward")
    def on_before_forward(self, trainer: Trainer, module: Module) -> None:
        """Called before the forward of a training batch, if there is no `training_step`."""

    @_known_as(composer="after_forward")
    def on_after_forward(self, trainer: Trainer, module: Module, outputs: Any) -> None:
        """Called after the forward of a training batch, if there is no `training_step`."""

    @_known_as(composer="before_loss")
    def on_before_loss(self, trainer: Trainer, module: Module) -> None:
        """Called before the loss of a training batch, if there is no `training_step`."""

    @_known_as(composer="after_loss", accelerated="on_train_step_end")
    def on_after_loss(self, trainer: Trainer, module: Module, loss: Tensor) -> None:
        """Called with the loss, not yet scaled, if there is no `training_step`."""

    @_known_as(lightning="same", composer="before_backward")
    def on_before_backward(self, trainer: Trainer, module: Module, loss: Tensor) -> None:
        """Called before backward, with the loss already divided for accumulation, and scaled."""

    @_known_as(lightning="same", composer="after_backward")
    def on_after_backward(self, trainer: Trainer, module: Module) -> None:
        """Called after backward, when the gradients are there, still scaled."""

    @_known_as(lightning="same")
    def on_before_optimizer_step(
        self, trainer: Trainer, module: Module, optimizer: Optimizer
    ) -> None:
        """Called when a window's gradients are complete and unscaled, before clipping."""

    @_known_as(composer="after_train_batch")
    def on_after_train_batch(self, trainer: Trainer, module: Module) -> None:
        """Called right before the optimizer's step, when a window's gradients are clipped."""

    def on_after_optimizer_step(
        self, trainer: Trainer, module: Module, optimizer: Optimizer
    ) -> None:
        """Called after the optimizer's step, with the gradients still there."""

    @_known_as(lightning="same", composer="batch_end")
    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Called after a training batch is counted, with its whole loss; empty if skipped."""

    @_known_as(composer="batch_checkpoint")
    def on_batch_checkpoint(self, trainer: Trainer, module: Module) -> None:
        """Called after a training batch and any validation due on it: a slot for saving."""

    @_known_as(composer="epoch_end", accelerated="on_train_epoch_end")
    def on_train_batches_end(self, trainer: Trainer, module: Module) -> None:
        """Called after an epoch's last training batch, before the epoch's own validation."""

    @_known_as(composer="eval_before_all")
    def on_validation_run_start(self, trainer: Trainer, module: Module) -> None:
        """Called in fit before a validation that is not the sanity check."""

    @_known_as(lightning="same", composer="eval_start")
    def on_validation_start(self, trainer: Trainer, module: Module) -> None:
        """Called when validation begins, with the module in eval mode."""

    @_known_as(lightning="same", accelerated="on_eval_epoch_start")
    def on_validation_epoch_start(self, trainer: Trainer, module: Module) -> None:
        """Called before the first batch of a validation."""

    @_known_as(lightning="same", composer="eval_batch_start", accelerated="on_eval_step_start")
    def on_validation_batch_start(
        self, trainer: Trainer, module: Module, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Called before a validation batch."""

    @_known_as(composer="eval_before_forward")
    def on_validation_before_forward(self, trainer: Trainer, module: Module) -> None:
        """Called before the forward of a validation batch, if there is no `validation_step`."""

    @_known_as(composer="eval_after_forward")
    def on_validation_after_forward(self, trainer: Trainer, module: Module, outputs: Any) -> None:
        """Called after the forward of a validation batch, if there is no `validation_step`."""

    def on_validation_after_loss(self, trainer: Trainer, module: Module, loss: Tensor) -> None:
        """Called after the loss of a validation batch, if there is no `validation_step`."""

    @_known_as(lightning="same", composer="eval_batch_end", accelerated="on_eval_step_end")
    def on_validation_batch_end(
        self,
        trainer: Trainer,
        module: Module,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Called after a validation batch, with what `validation_step` returned."""

    @_known_as(lightning="same", accelerated="on_eval_epoch_end")
    def on_validation_epoch_end(self, trainer: Trainer, module: Module) -> None:
        """Called after the last batch of a validation, when its metrics can be read."""

    @_known_as(lightning="same", composer="eval_end")
    def on_validation_end(self, trainer: Trainer, module: Module) -> None:
        """Called when validation is over."""

    @_known_as(composer="eval_after_all")
    def on_validation_run_end(self, trainer: Trainer, module: Module) -> None:
        """Called in fit after a validation that is not the sanity check."""

    @_known_as(lightning="same", accelerated="on_training_run_epoch_end")
    def on_train_epoch_end(self, trainer: Trainer, module: Module) -> None:
        """Called at the end of a training epoch, after its validation."""

    @_known_as(lightning="1.x same")
    def on_epoch_end(self, trainer: Trainer, module: Module) -> None:
        """Called at the end of an epoch of any phase: train, validation, test, predict."""

    @_known_as(composer="epoch_checkpoint")
    def on_epoch_checkpoint(self, trainer: Trainer, module: Module) -> None:
        """Called after all hooks that end a training epoch: a slot for saving."""

    @_known_as(composer="iteration_end")
    def on_iteration_end(self, trainer: Trainer, module: Module) -> None:
        """Called at the end of a cycle of `iteration_length` epochs."""

    @_known_as(composer="iteration_checkpoint")
    def on_iteration_checkpoint(self, trainer: Trainer, module: Module) -> None:
        """Called after the end of a cycle: a slot for saving."""

    @_known_as(lightning="same")
    def on_train_end(self, trainer: Trainer, module: Module) -> None:
        """Called after the last training epoch, also if it was stopped; not after an error."""

    @_known_as(lightning="same", composer="fit_end", accelerated="on_training_run_end")
    def on_fit_end(self, trainer: Trainer, module: Module) -> None:
        """Called at the end of fit; not after an error."""

    @_known_as(composer="eval_standalone_start", accelerated="on_evaluation_run_start")
    def on_evaluation_run_start(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Called before the batches of `validate()` or `test()`; not inside fit."""

    @_known_as(composer="eval_standalone_end", accelerated="on_evaluation_run_end")
    def on_evaluation_run_end(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Called after the batches of `validate()` or `test()`; not inside fit."""

    @_known_as(lightning="same", composer="eval_start")
    def on_test_start(self, trainer: Trainer, module: Module) -> None:
        """Called when testing begins, with the module in eval mode."""

    @_known_as(lightning="same", accelerated="on_eval_epoch_start")
    def on_test_epoch_start(self, trainer: Trainer, module: Module) -> None:
        """Called before the first batch of a test."""

    @_known_as(lightning="same", composer="eval_batch_start", accelerated="on_eval_step_start")
    def on_test_batch_start(
        self, trainer: Trainer, module: Module, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Called before a test batch."""

    @_known_as(lightning="same", composer="eval_batch_end", accelerated="on_eval_step_end")
    def on_test_batch_end(
        self,
        trainer: Trainer,
        module: Module,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Called after a test batch, with what `test_step` returned."""

    @_known_as(lightning="same", accelerated="on_eval_epoch_end")
    def on_test_epoch_end(self, trainer: Trainer, module: Module) -> None:
        """Called after the last batch of a test, when its metrics can be read."""

    @_known_as(lightning="same", composer="eval_end")
    def on_test_end(self, trainer: Trainer, module: Module) -> None:
        """Called when testing is over."""

    @_known_as(lightning="same", composer="predict_start")
    def on_predict_start(self, trainer: Trainer, module: Module) -> None:
        """Called when prediction begins, with the module in eval mode."""

    @_known_as(lightning="same")
    def on_predict_epoch_start(self, trainer: Trainer, module: Module) -> None:
        """Called before the first batch of a prediction."""

    @_known_as(lightning="same", composer="predict_batch_start")
    def on_predict_batch_start(
        self, trainer: Trainer, module: Module, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Called before a predict batch."""

    @_known_as(composer="predict_before_forward")
    def on_predict_before_forward(self, trainer: Trainer, module: Module) -> None:
        """Called before the forward of a predict batch, if there is no `predict_step`."""

    @_known_as(composer="predict_after_forward")
    def on_predict_after_forward(self, trainer: Trainer, module: Module, outputs: Any) -> None:
        """Called after the forward of a predict batch, if there is no `predict_step`."""

    @_known_as(lightning="same", composer="predict_batch_end")
    def on_predict_batch_end(
        self,
        trainer: Trainer,
        module: Module,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Called after a predict batch, with what `predict_step` returned."""

    @_known_as(lightning="same")
    def on_predict_epoch_end(self, trainer: Trainer, module: Module) -> None:
        """Called after the last batch of a prediction."""

    @_known_as(lightning="same", composer="predict_end")
    def on_predict_end(self, trainer: Trainer, module: Module) -> None:
        """Called when prediction is over."""

    @_known_as(lightning="same")
    def on_save_checkpoint(
        self, trainer: Trainer, module: Module, checkpoint: dict[str, Any]
    ) -> None:
        """Called while a checkpoint is made, with all that is in it, to add to it or change it."""

    def on_checkpoint_saved(self, trainer: Trainer, module: Module, path: str) -> None:
        """Called when a checkpoint file is complete and durable."""

    def on_log(
        self, trainer: Trainer, module: Module, metrics: dict[str, float], step: int
    ) -> None:
        """Called with the metrics that are handed to the loggers."""

    @_known_as(accelerated="on_stop_training_error")
    def on_stop_training_error(
        self, trainer: Trainer, module: Module, error: BaseException
    ) -> None:
        """Called when something raised `StopTraining`; the run then ends in order."""

    @_known_as(lightning="1.x same")
    def on_keyboard_interrupt(self, trainer: Trainer, module: Module) -> None:
        """Called on Ctrl-C, before `on_exception`."""

    @_known_as(lightning="same")
    def on_exception(self, trainer: Trainer, module: Module, exception: BaseException) -> None:
        """Called for any exception that leaves fit, validate, test or predict."""

    @_known_as(lightning="same")
    def teardown(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Called at the end of fit, validate, test and predict, also after an exception."""

    @_known_as(composer="close")
    def on_close(self, trainer: Trainer, module: Module) -> None:
        """Called by `trainer.close()`, to flush and close files."""

    @_known_as(composer="post_close")
    def on_post_close(self, trainer: Trainer, module: Module) -> None:
        """Called by `trainer.close()` after every `on_close`, to back up what was written."""
