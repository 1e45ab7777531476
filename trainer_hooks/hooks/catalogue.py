"""The hook catalogue: every hook, as far as possible in the order in which a run fires them.

This class is the one place where a hook is declared. The relay, the lambda callback, the docs page,
the checks on names and signatures, and the typing all derive from it.

Hooks are called with positional arguments and return None; a module's own hooks take neither
`trainer` nor `module`. A "step" is an optimizer step
(`trainer.global_step`); a "window" is the batches whose gradients accumulate into one step; a
"slot" is a moment for saving, one of the `..._checkpoint` hooks. `dataloader_idx` is passed where
there are several loaders.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor
    from torch.optim import Optimizer

    from trainer_hooks.module.module import Module
    from trainer_hooks.trainer.trainer import Trainer

_Method = TypeVar("_Method", bound="Callable[..., None]")


class HookTraits(NamedTuple):
    """How a hook is fired otherwise than most.

    Attributes:
        event: its second name in `trainer_hooks.Event`, which is that of MosaicML Composer's event;
            validation and test share the `eval` ones.
        is_isolated: whether it runs for every member, even if one of them fails.
        cuts_batch: whether a `StopTraining` in it cuts the batch off: it is raised to the loop.
        closes_epoch: whether it ends an epoch, so that a resume calls it again if an error has
            broken it off.
        is_not_repeated: whether a resume does not call it again where an error has broken it off,
            also for listeners that had no turn.
        is_slot: whether savers save in it, one after the other.
        is_safe_for_saving: whether a save in it gives no warning, though it is no slot: a resume
            calls each hook once, or warns itself of a save inside a batch.
        is_module_first: whether it fires on the module before any callback, whatever their bands.
    """

    event: str = ""
    is_isolated: bool = False
    cuts_batch: bool = False
    closes_epoch: bool = False
    is_not_repeated: bool = False
    is_slot: bool = False
    is_safe_for_saving: bool = False
    is_module_first: bool = False


USUAL = HookTraits()
"""The traits of a hook without any."""


def hook(**traits: Any) -> Callable[[_Method], _Method]:
    """Return a decorator that declares the traits of a hook, the attributes of `HookTraits`."""
    return partial(_declare, HookTraits(**traits))


def _declare(traits: HookTraits, method: _Method) -> _Method:
    vars(method)["traits"] = traits
    return method


class Hooks:
    """One empty method for each hook. A callback overrides those that it needs."""

    def on_init_start(self, trainer: Trainer) -> None:
        """Called early in `Trainer(...)`: callbacks are known, no attribute can be read yet."""

    @hook(event="init")
    def on_init_end(self, trainer: Trainer) -> None:
        """Called at the end of `Trainer(...)`: plugins are loaded and the order is fixed."""

    def setup(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Called at the start of fit, validate, test and predict; `stage` says which."""

    def on_configure_model(self, trainer: Trainer, module: Module) -> None:
        """Called before the module's `configure_model`, which makes large layers."""

    def on_after_configure_model(self, trainer: Trainer, module: Module) -> None:
        """Called when the module is complete and on its device, before optimizers are made."""

    @hook(event="before_load")
    def on_before_load(self, trainer: Trainer, module: Module, path: str | None) -> None:
        """Called before a checkpoint is restored, also if there is none (`path` is None)."""

    def on_before_restore(
        self, trainer: Trainer, module: Module, checkpoint: dict[str, Any]
    ) -> None:
        """Called with a checkpoint before any of it is restored; it may be changed."""

    @hook(is_module_first=True)
    def on_load_checkpoint(
        self, trainer: Trainer, module: Module, checkpoint: dict[str, Any]
    ) -> None:
        """Called with a checkpoint whose weights are restored; on the module before they are."""

    @hook(event="after_load")
    def on_after_load(
        self, trainer: Trainer, module: Module, checkpoint: dict[str, Any] | None
    ) -> None:
        """Called when all is restored, or there was nothing to restore (`checkpoint` is None)."""

    @hook(event="fit_start", is_safe_for_saving=True)
    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Called when fit is ready: model on its device, optimizers made, checkpoint restored."""

    def on_sanity_check_start(self, trainer: Trainer, module: Module) -> None:
        """Called before the sanity check: a few validation batches, run before training."""

    def on_sanity_check_end(self, trainer: Trainer, module: Module) -> None:
        """Called after the sanity check."""

    @hook(is_safe_for_saving=True)
    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """Called once in a fit, after the sanity check and before the first epoch."""

    @hook(event="iteration_start", is_not_repeated=True)
    def on_iteration_start(self, trainer: Trainer, module: Module) -> None:
        """Called at the start of a cycle of `iteration_length` epochs."""

    @hook(is_not_repeated=True)
    def on_epoch_start(self, trainer: Trainer, module: Module) -> None:
        """Called at the start of an epoch of any phase: train, validation, test, predict."""

    @hook(event="epoch_start", is_not_repeated=True)
    def on_train_epoch_start(self, trainer: Trainer, module: Module) -> None:
        """Called at the start of a training epoch; not again if a run is resumed inside it."""

    @hook(event="before_dataloader")
    def on_before_dataloader(self, trainer: Trainer, module: Module) -> None:
        """Called before the next training batch is taken from the loader."""

    @hook(event="after_dataloader")
    def on_after_dataloader(self, trainer: Trainer, module: Module, batch: Any) -> None:
        """Called with a batch from the loader, not yet on the device; None if there was none."""

    @hook(event="batch_start", cuts_batch=True)
    def on_train_batch_start(
        self, trainer: Trainer, module: Module, batch: Any, batch_idx: int
    ) -> None:
        """Called when a training batch is on its device, before its step."""

    @hook(event="before_train_batch", cuts_batch=True)
    def on_before_train_batch(self, trainer: Trainer, module: Module) -> None:
        """Called after `on_train_batch_start` of a window's first batch, before its forward."""

    @hook(cuts_batch=True)
    def on_before_zero_grad(self, trainer: Trainer, module: Module, optimizer: Optimizer) -> None:
        """Called before gradients are cleared, at the start of a window, before the forward."""

    @hook(event="before_forward", cuts_batch=True)
    def on_before_forward(self, trainer: Trainer, module: Module) -> None:
        """Called before the forward of a training batch, if there is no `training_step`."""

    @hook(event="after_forward", cuts_batch=True)
    def on_after_forward(self, trainer: Trainer, module: Module, outputs: Any) -> None:
        """Called after the forward of a training batch, if there is no `training_step`."""

    @hook(event="before_loss", cuts_batch=True)
    def on_before_loss(self, trainer: Trainer, module: Module) -> None:
        """Called before the loss of a training batch, if there is no `training_step`."""

    @hook(event="after_loss", cuts_batch=True)
    def on_after_loss(self, trainer: Trainer, module: Module, loss: Tensor) -> None:
        """Called with the loss, not yet scaled, if there is no `training_step`."""

    @hook(event="before_backward", cuts_batch=True)
    def on_before_backward(self, trainer: Trainer, module: Module, loss: Tensor) -> None:
        """Called before backward, with the loss already divided for accumulation, and scaled."""

    @hook(event="after_backward", cuts_batch=True)
    def on_after_backward(self, trainer: Trainer, module: Module) -> None:
        """Called after backward, with the gradients computed and still scaled."""

    @hook(cuts_batch=True)
    def on_before_optimizer_step(
        self, trainer: Trainer, module: Module, optimizer: Optimizer
    ) -> None:
        """Called when a window's gradients are complete and unscaled, before clipping."""

    @hook(event="after_train_batch", cuts_batch=True)
    def on_after_train_batch(self, trainer: Trainer, module: Module) -> None:
        """Called right before the optimizer's step, despite its name; gradients are clipped."""

    @hook(cuts_batch=True)
    def on_after_optimizer_step(
        self, trainer: Trainer, module: Module, optimizer: Optimizer
    ) -> None:
        """Called after the optimizer's step, with the gradients not yet cleared."""

    @hook(event="batch_end", is_not_repeated=True)
    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Called after a training batch is counted, with its whole loss; no outputs if skipped."""

    @hook(event="batch_checkpoint", is_not_repeated=True, is_slot=True)
    def on_batch_checkpoint(self, trainer: Trainer, module: Module) -> None:
        """Called after a training batch and any validation due on it: a slot for saving."""

    @hook(event="epoch_end", is_not_repeated=True, is_safe_for_saving=True)
    def on_train_batches_end(self, trainer: Trainer, module: Module) -> None:
        """Called after an epoch's last training batch, before the epoch's own validation."""

    @hook(event="eval_before_all", is_safe_for_saving=True)
    def on_validation_run_start(self, trainer: Trainer, module: Module) -> None:
        """Called in fit before a validation that is not the sanity check."""

    @hook(event="eval_start")
    def on_validation_start(self, trainer: Trainer, module: Module) -> None:
        """Called when validation begins, with the module in eval mode."""

    def on_validation_epoch_start(self, trainer: Trainer, module: Module) -> None:
        """Called before the first batch of a validation."""

    @hook(event="eval_batch_start", cuts_batch=True)
    def on_validation_batch_start(
        self, trainer: Trainer, module: Module, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Called before a validation batch."""

    @hook(event="eval_before_forward", cuts_batch=True)
    def on_validation_before_forward(self, trainer: Trainer, module: Module) -> None:
        """Called before the forward of a validation batch, if there is no `validation_step`."""

    @hook(event="eval_after_forward", cuts_batch=True)
    def on_validation_after_forward(self, trainer: Trainer, module: Module, outputs: Any) -> None:
        """Called after the forward of a validation batch, if there is no `validation_step`."""

    @hook(cuts_batch=True)
    def on_validation_after_loss(self, trainer: Trainer, module: Module, loss: Tensor) -> None:
        """Called after the loss of a validation batch, if there is no `validation_step`."""

    @hook(event="eval_batch_end")
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

    @hook(event="eval_end")
    def on_validation_end(self, trainer: Trainer, module: Module) -> None:
        """Called when validation is over."""

    @hook(event="eval_after_all")
    def on_validation_run_end(self, trainer: Trainer, module: Module) -> None:
        """Called in fit after a validation that is not the sanity check."""

    @hook(closes_epoch=True)
    def on_train_epoch_end(self, trainer: Trainer, module: Module) -> None:
        """Called at the end of a training epoch, after its validation."""

    @hook(closes_epoch=True)
    def on_epoch_end(self, trainer: Trainer, module: Module) -> None:
        """Called at the end of an epoch of any phase: train, validation, test, predict."""

    @hook(event="epoch_checkpoint", is_not_repeated=True, is_slot=True)
    def on_epoch_checkpoint(self, trainer: Trainer, module: Module) -> None:
        """Called after all hooks that end a training epoch: a slot for saving."""

    @hook(event="iteration_end", is_not_repeated=True)
    def on_iteration_end(self, trainer: Trainer, module: Module) -> None:
        """Called at the end of a cycle of `iteration_length` epochs."""

    @hook(event="iteration_checkpoint", is_not_repeated=True, is_slot=True)
    def on_iteration_checkpoint(self, trainer: Trainer, module: Module) -> None:
        """Called after the end of a cycle: a slot for saving."""

    @hook(is_safe_for_saving=True)
    def on_train_end(self, trainer: Trainer, module: Module) -> None:
        """Called after the last training epoch, also if it was stopped; not after an error."""

    @hook(event="fit_end", is_safe_for_saving=True)
    def on_fit_end(self, trainer: Trainer, module: Module) -> None:
        """Called at the end of fit; not after an error."""

    @hook(event="eval_standalone_start")
    def on_evaluation_run_start(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Called before the batches of `validate()` or `test()`; not inside fit."""

    @hook(event="eval_standalone_end")
    def on_evaluation_run_end(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Called after the batches of `validate()` or `test()`; not inside fit."""

    @hook(event="eval_start")
    def on_test_start(self, trainer: Trainer, module: Module) -> None:
        """Called when testing begins, with the module in eval mode."""

    def on_test_epoch_start(self, trainer: Trainer, module: Module) -> None:
        """Called before the first batch of a test."""

    @hook(event="eval_batch_start", cuts_batch=True)
    def on_test_batch_start(
        self, trainer: Trainer, module: Module, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Called before a test batch."""

    @hook(event="eval_batch_end")
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

    @hook(event="eval_end")
    def on_test_end(self, trainer: Trainer, module: Module) -> None:
        """Called when testing is over."""

    @hook(event="predict_start")
    def on_predict_start(self, trainer: Trainer, module: Module) -> None:
        """Called when prediction begins, with the module in eval mode."""

    def on_predict_epoch_start(self, trainer: Trainer, module: Module) -> None:
        """Called before the first batch of a prediction."""

    @hook(event="predict_batch_start", cuts_batch=True)
    def on_predict_batch_start(
        self, trainer: Trainer, module: Module, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Called before a predict batch."""

    @hook(event="predict_before_forward", cuts_batch=True)
    def on_predict_before_forward(self, trainer: Trainer, module: Module) -> None:
        """Called before the forward of a predict batch, if there is no `predict_step`."""

    @hook(event="predict_after_forward", cuts_batch=True)
    def on_predict_after_forward(self, trainer: Trainer, module: Module, outputs: Any) -> None:
        """Called after the forward of a predict batch, if there is no `predict_step`."""

    @hook(event="predict_batch_end")
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

    @hook(event="predict_end")
    def on_predict_end(self, trainer: Trainer, module: Module) -> None:
        """Called when prediction is over."""

    def on_save_checkpoint(
        self, trainer: Trainer, module: Module, checkpoint: dict[str, Any]
    ) -> None:
        """Called while a checkpoint is made, with its content, to add to it or change it."""

    @hook(is_safe_for_saving=True)
    def on_checkpoint_saved(self, trainer: Trainer, module: Module, path: str) -> None:
        """Called when a checkpoint file is complete and durable."""

    def on_log(
        self, trainer: Trainer, module: Module, metrics: dict[str, float], step: int
    ) -> None:
        """Called with the metrics that go to the loggers."""

    @hook(is_safe_for_saving=True)
    def on_stop_training_error(
        self, trainer: Trainer, module: Module, error: BaseException
    ) -> None:
        """Called after a `StopTraining` was raised; the run then ends in order."""

    @hook(is_isolated=True, is_safe_for_saving=True)
    def on_keyboard_interrupt(self, trainer: Trainer, module: Module) -> None:
        """Called on Ctrl-C, before `on_exception`."""

    @hook(is_isolated=True, is_safe_for_saving=True)
    def on_exception(self, trainer: Trainer, module: Module, exception: BaseException) -> None:
        """Called for an exception that breaks off a run, unless it comes from `teardown`."""

    @hook(is_isolated=True, is_safe_for_saving=True)
    def teardown(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Called at the end of fit, validate, test and predict, also after an exception."""

    @hook(event="close", is_isolated=True, is_safe_for_saving=True)
    def on_close(self, trainer: Trainer, module: Module) -> None:
        """Called by `trainer.close()`, to flush and close files."""

    @hook(event="post_close", is_isolated=True, is_safe_for_saving=True)
    def on_post_close(self, trainer: Trainer, module: Module) -> None:
        """Called by `trainer.close()` after every `on_close`, to back up the written files."""
