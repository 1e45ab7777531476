"""The hook catalogue: every hook, in the order in which a run fires them.

This class is the one place where a hook is declared. The relay, the lambda callback, the docs page,
the checks on names and signatures, and the typing all derive from it.

Hooks are called with positional arguments and return None. A "step" is an optimizer step
(`trainer.global_step`); a "window" is the batches whose gradients accumulate into one step; a
"slot" is a moment for saving, one of the `..._checkpoint` hooks. `dataloader_idx` is passed where
there are several loaders.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

    from trainer_hooks.module.module import Module
    from trainer_hooks.trainer.trainer import Trainer


class Hooks:
    """One empty method for each hook. A callback overrides those that it needs."""

    def on_init_start(self, trainer: Trainer) -> None:
        """Called early in `Trainer(...)`: callbacks are known, no attribute can be read yet."""

    def on_init_end(self, trainer: Trainer) -> None:
        """Called at the end of `Trainer(...)`: plugins are loaded and the order is fixed."""

    def setup(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Called at the start of fit, validate, test and predict; `stage` says which."""

    def on_configure_model(self, trainer: Trainer, module: Module) -> None:
        """Called before the module's `configure_model`, which makes large layers."""

    def on_after_configure_model(self, trainer: Trainer, module: Module) -> None:
        """Called when the module is complete and on its device, before optimizers are made."""

    def on_before_load(self, trainer: Trainer, module: Module, path: str | None) -> None:
        """Called before a checkpoint is restored, also if there is none (`path` is None)."""

    def on_before_restore(
        self, trainer: Trainer, module: Module, checkpoint: dict[str, Any]
    ) -> None:
        """Called with a checkpoint before any of it is restored; it may be changed."""

    def on_load_checkpoint(
        self, trainer: Trainer, module: Module, checkpoint: dict[str, Any]
    ) -> None:
        """Called with a checkpoint whose weights are restored; on the module before they are."""

    def on_after_load(
        self, trainer: Trainer, module: Module, checkpoint: dict[str, Any] | None
    ) -> None:
        """Called when all is restored, or there was nothing to restore (`checkpoint` is None)."""

    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Called when fit is ready: model on its device, optimizers made, checkpoint restored."""

    def on_sanity_check_start(self, trainer: Trainer, module: Module) -> None:
        """Called before the sanity check: a few validation batches, run before training."""

    def on_sanity_check_end(self, trainer: Trainer, module: Module) -> None:
        """Called after the sanity check."""

    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """Called once in a fit, after the sanity check and before the first epoch."""

    def on_iteration_start(self, trainer: Trainer, module: Module) -> None:
        """Called at the start of a cycle of `iteration_length` epochs."""

    def on_epoch_start(self, trainer: Trainer, module: Module) -> None:
        """Called at the start of an epoch of any phase: train, validation, test, predict."""

    def on_train_epoch_start(self, trainer: Trainer, module: Module) -> None:
        """Called at the start of a training epoch; not again if a run is resumed inside it."""

    def on_before_dataloader(self, trainer: Trainer, module: Module) -> None:
        """Called before the next training batch is taken from the loader."""

    def on_after_dataloader(self, trainer: Trainer, module: Module, batch: Any) -> None:
        """Called with a batch from the loader, not yet on the device; None if there was none."""

    def on_train_batch_start(
        self, trainer: Trainer, module: Module, batch: Any, batch_idx: int
    ) -> None:
        """Called when a training batch is on its device, before its step."""

    def on_before_train_batch(self, trainer: Trainer, module: Module) -> None:
        """Called after `on_train_batch_start` of a window's first batch, before its forward."""

    def on_before_zero_grad(self, trainer: Trainer, module: Module, optimizer: Optimizer) -> None:
        """Called before gradients are cleared, at the start of a window, before the forward."""

    def on_before_forward(self, trainer: Trainer, module: Module) -> None:
        """Called before the forward of a training batch, if there is no `training_step`."""

    def on_after_forward(self, trainer: Trainer, module: Module, outputs: Any) -> None:
        """Called after the forward of a training batch, if there is no `training_step`."""

    def on_before_loss(self, trainer: Trainer, module: Module) -> None:
        """Called before the loss of a training batch, if there is no `training_step`."""

    def on_after_loss(self, trainer: Trainer, module: Module, loss: Tensor) -> None:
        """Called with the loss, not yet scaled, if there is no `training_step`."""

    def on_before_backward(self, trainer: Trainer, module: Module, loss: Tensor) -> None:
        """Called before backward, with the loss already divided for accumulation, and scaled."""

    def on_after_backward(self, trainer: Trainer, module: Module) -> None:
        """Called after backward, with the gradients computed and still scaled."""

    def on_before_optimizer_step(
        self, trainer: Trainer, module: Module, optimizer: Optimizer
    ) -> None:
        """Called when a window's gradients are complete and unscaled, before clipping."""

    def on_after_train_batch(self, trainer: Trainer, module: Module) -> None:
        """Called after a window's gradients are clipped, right before the optimizer's step."""

    def on_after_optimizer_step(
        self, trainer: Trainer, module: Module, optimizer: Optimizer
    ) -> None:
        """Called after the optimizer's step, with the gradients not yet cleared."""

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Called after a training batch is counted, with its whole loss; empty if skipped."""

    def on_batch_checkpoint(self, trainer: Trainer, module: Module) -> None:
        """Called after a training batch and any validation due on it: a slot for saving."""

    def on_train_batches_end(self, trainer: Trainer, module: Module) -> None:
        """Called after an epoch's last training batch, before the epoch's own validation."""

    def on_validation_run_start(self, trainer: Trainer, module: Module) -> None:
        """Called in fit before a validation that is not the sanity check."""

    def on_validation_start(self, trainer: Trainer, module: Module) -> None:
        """Called when validation begins, with the module in eval mode."""

    def on_validation_epoch_start(self, trainer: Trainer, module: Module) -> None:
        """Called before the first batch of a validation."""

    def on_validation_batch_start(
        self, trainer: Trainer, module: Module, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Called before a validation batch."""

    def on_validation_before_forward(self, trainer: Trainer, module: Module) -> None:
        """Called before the forward of a validation batch, if there is no `validation_step`."""

    def on_validation_after_forward(self, trainer: Trainer, module: Module, outputs: Any) -> None:
        """Called after the forward of a validation batch, if there is no `validation_step`."""

    def on_validation_after_loss(self, trainer: Trainer, module: Module, loss: Tensor) -> None:
        """Called after the loss of a validation batch, if there is no `validation_step`."""

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        module: Module,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Called after a validation batch, with the return value of `validation_step`."""

    def on_validation_epoch_end(self, trainer: Trainer, module: Module) -> None:
        """Called after the last batch of a validation, when its metrics can be read."""

    def on_validation_end(self, trainer: Trainer, module: Module) -> None:
        """Called when validation is over."""

    def on_validation_run_end(self, trainer: Trainer, module: Module) -> None:
        """Called in fit after a validation that is not the sanity check."""

    def on_train_epoch_end(self, trainer: Trainer, module: Module) -> None:
        """Called at the end of a training epoch, after its validation."""

    def on_epoch_end(self, trainer: Trainer, module: Module) -> None:
        """Called at the end of an epoch of any phase: train, validation, test, predict."""

    def on_epoch_checkpoint(self, trainer: Trainer, module: Module) -> None:
        """Called after all hooks that end a training epoch: a slot for saving."""

    def on_iteration_end(self, trainer: Trainer, module: Module) -> None:
        """Called at the end of a cycle of `iteration_length` epochs."""

    def on_iteration_checkpoint(self, trainer: Trainer, module: Module) -> None:
        """Called after the end of a cycle: a slot for saving."""

    def on_train_end(self, trainer: Trainer, module: Module) -> None:
        """Called after the last training epoch, also if it was stopped; not after an error."""

    def on_fit_end(self, trainer: Trainer, module: Module) -> None:
        """Called at the end of fit; not after an error."""

    def on_evaluation_run_start(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Called before the batches of `validate()` or `test()`; not inside fit."""

    def on_evaluation_run_end(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Called after the batches of `validate()` or `test()`; not inside fit."""

    def on_test_start(self, trainer: Trainer, module: Module) -> None:
        """Called when testing begins, with the module in eval mode."""

    def on_test_epoch_start(self, trainer: Trainer, module: Module) -> None:
        """Called before the first batch of a test."""

    def on_test_batch_start(
        self, trainer: Trainer, module: Module, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Called before a test batch."""

    def on_test_batch_end(
        self,
        trainer: Trainer,
        module: Module,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Called after a test batch, with the return value of `test_step`."""

    def on_test_epoch_end(self, trainer: Trainer, module: Module) -> None:
        """Called after the last batch of a test, when its metrics can be read."""

    def on_test_end(self, trainer: Trainer, module: Module) -> None:
        """Called when testing is over."""

    def on_predict_start(self, trainer: Trainer, module: Module) -> None:
        """Called when prediction begins, with the module in eval mode."""

    def on_predict_epoch_start(self, trainer: Trainer, module: Module) -> None:
        """Called before the first batch of a prediction."""

    def on_predict_batch_start(
        self, trainer: Trainer, module: Module, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Called before a predict batch."""

    def on_predict_before_forward(self, trainer: Trainer, module: Module) -> None:
        """Called before the forward of a predict batch, if there is no `predict_step`."""

    def on_predict_after_forward(self, trainer: Trainer, module: Module, outputs: Any) -> None:
        """Called after the forward of a predict batch, if there is no `predict_step`."""

    def on_predict_batch_end(
        self,
        trainer: Trainer,
        module: Module,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Called after a predict batch, with the return value of `predict_step`."""

    def on_predict_epoch_end(self, trainer: Trainer, module: Module) -> None:
        """Called after the last batch of a prediction."""

    def on_predict_end(self, trainer: Trainer, module: Module) -> None:
        """Called when prediction is over."""

    def on_save_checkpoint(
        self, trainer: Trainer, module: Module, checkpoint: dict[str, Any]
    ) -> None:
        """Called while a checkpoint is made, with its content, to add to it or change it."""

    def on_checkpoint_saved(self, trainer: Trainer, module: Module, path: str) -> None:
        """Called when a checkpoint file is complete and durable."""

    def on_log(
        self, trainer: Trainer, module: Module, metrics: dict[str, float], step: int
    ) -> None:
        """Called with the metrics that go to the loggers."""

    def on_stop_training_error(
        self, trainer: Trainer, module: Module, error: BaseException
    ) -> None:
        """Called after a `StopTraining` was raised; the run then ends in order."""

    def on_keyboard_interrupt(self, trainer: Trainer, module: Module) -> None:
        """Called on Ctrl-C, before `on_exception`."""

    def on_exception(self, trainer: Trainer, module: Module, exception: BaseException) -> None:
        """Called for any exception that leaves fit, validate, test or predict."""

    def teardown(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Called at the end of fit, validate, test and predict, also after an exception."""

    def on_close(self, trainer: Trainer, module: Module) -> None:
        """Called by `trainer.close()`, to flush and close files."""

    def on_post_close(self, trainer: Trainer, module: Module) -> None:
        """Called by `trainer.close()` after every `on_close`, to back up the written files."""
