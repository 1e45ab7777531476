"""WeightAveraging: evaluate and keep an average of the weights that a training goes through."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks._log import warn
from trainer_hooks.callbacks.averaging.average import Average, check_averaging, check_device
from trainer_hooks.callbacks.monitoring import check_choice
from trainer_hooks.callbacks.weight_owner import WeightOwner
from trainer_hooks.errors import TrainerHooksWarning

if TYPE_CHECKING:
    import torch

    from trainer_hooks.callbacks.averaging.average import AvgFn, MultiAvgFn
    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["WeightAveraging"]

_CURRENT, _AVERAGING = "current_model_state", "averaging_state"
"""The keys of a checkpoint that Lightning uses too."""


class WeightAveraging(WeightOwner):
    """Keep an average of the weights that a training goes through, and evaluate with it.

    The average is updated after optimizer steps or epochs, as `should_update` says: after each step
    unless you override it. While fit validates, the averaged weights are in the module, so that
    metrics, early stopping and the best checkpoint are about them; then the training goes on with
    its own. When the training is over the module has the averaged weights.

    A checkpoint's `state_dict` holds the averaged weights, so it loads into a plain module, and
    what it was saved for is what it does. The weights to train on with are beside it, under
    `current_model_state`; a file of weights alone holds the averaged ones.

    As long as nothing was averaged, everything is about the module's own weights. In
    `on_train_epoch_end` and everywhere else outside validation they are in the module too.
    A checkpoint that was saved without this callback can be resumed from, with a warning: the
    average then begins there. To average parameters of a module that is pruned or quantized
    meanwhile is refused.

    Args:
        device: where the average is kept; where the module is unless given.
        use_buffers: whether buffers, such as the statistics of BatchNorm, are averaged too; if not,
            those of the last update are kept.
        avg_fn: `(average, weight, number averaged before) -> average`, for one tensor; the mean of
            all unless given. `torch.optim.swa_utils` has some.
        multi_avg_fn: the same for lists of tensors, in place: faster.

    State: the steps and the epoch that were last averaged after; the checkpoint itself holds both
    kinds of weights, as Lightning's does.

    Raises:
        OptionError: an argument is outside its rule.
        CallbackError: in a run, another callback averages weights or changes the module's layers.

    Example::

        class FromTheSecondEpoch(WeightAveraging):
            def should_update(self, step_idx=None, epoch_idx=None):
                return epoch_idx is not None and epoch_idx >= 1

        trainer = Trainer(max_epochs=3, callbacks=[FromTheSecondEpoch()])
        trainer.fit(module, train_loader, val_loader)
    """

    def __init__(
        self,
        device: torch.device | str | int | None = None,
        use_buffers: bool = True,
        *,
        avg_fn: AvgFn | None = None,
        multi_avg_fn: MultiAvgFn | None = None,
    ) -> None:
        where = type(self).__name__
        self._device = check_device(device, where)
        self._use_buffers: bool = check_choice("use_buffers", use_buffers, where, (True, False))
        check_averaging(avg_fn, multi_avg_fn, where)
        self._avg_fn, self._multi_avg_fn = avg_fn, multi_avg_fn
        self._forget()

    def _forget(self) -> None:
        self._average: Average | None = None
        self._owner: Module | None = None
        self._is_exchanged = False
        self._pending: tuple[dict[str, Any], dict[str, Any]] | None = None
        self._latest_update_step = 0
        self._latest_update_epoch = -1
        self._latest_step = 0

    @property
    def averaged_module(self) -> Module | None:
        """A copy of the module with the averaged weights; None before the first fit."""
        return None if self._average is None else self._average.module

    @property
    def num_averaged(self) -> int:
        """How many times weights were averaged in."""
        return 0 if self._average is None else self._average.count

    def should_update(self, step_idx: int | None = None, epoch_idx: int | None = None) -> bool:
        """Return whether to average after this step or epoch; override it to choose.

        Args:
            step_idx: the index of the optimizer step just made, from 0 on; None after an epoch.
            epoch_idx: the index of the epoch that is ending, from 0 on; None after a step.
        """
        return step_idx is not None

    def state_dict(self) -> dict[str, Any]:
        """Return what was last averaged after, and the last step that was asked about."""
        return {
            "latest_update_step": self._latest_update_step,
            "latest_update_epoch": self._latest_update_epoch,
            "latest_step": self._latest_step,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take it back; Lightning saves the first item alone."""
        self._latest_update_step = state_dict["latest_update_step"]
        self._latest_update_epoch = state_dict.get("latest_update_epoch", -1)
        self._latest_step = state_dict.get("latest_step", self._latest_update_step)

    def on_load_checkpoint(
        self, trainer: Trainer, module: Module, checkpoint: dict[str, Any]
    ) -> None:
        """Let the current weights be those that are put into the module."""
        if trainer.state.fn != "fit":
            if module is self._owner:
                self._forget()  # the module is about to have other weights
            return
        self._forget()
        if _CURRENT in checkpoint and _AVERAGING in checkpoint:
            self._pending = checkpoint["state_dict"], checkpoint[_AVERAGING]
            checkpoint["state_dict"] = checkpoint[_CURRENT]
        else:
            warn(
                f"the checkpoint holds no average of weights: that of {type(self).__name__} begins "
                "with the weights that it has.",
                TrainerHooksWarning,
            )

    def on_after_load(
        self, trainer: Trainer, module: Module, checkpoint: dict[str, Any] | None
    ) -> None:
        """Copy the module, now that it is whole and where it is to be."""
        if trainer.state.fn != "fit":
            return
        if self._average is None or self._owner is not module:
            self._owner, self._is_exchanged = module, False
            self._average = Average(
                module, self._device, self._use_buffers, self._avg_fn, self._multi_avg_fn
            )
        if self._pending is not None:
            self._average.load(*self._pending)
            self._pending = None
        elif checkpoint is not None:
            self._latest_step = trainer.global_step

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Average after an optimizer step, if that is wanted."""
        if trainer.global_step > self._latest_step:
            self._after_step(trainer, module)

    def on_train_batches_end(self, trainer: Trainer, module: Module) -> None:
        """Average after the step of a window that the epoch's end cut short."""
        if trainer.global_step > self._latest_step:
            self._after_step(trainer, module)

    def _after_step(self, trainer: Trainer, module: Module) -> None:
        steps = self._latest_step = trainer.global_step
        if self.should_update(step_idx=steps - 1):
            self._update(module)
            self._latest_update_step = steps

    def on_train_epoch_end(self, trainer: Trainer, module: Module) -> None:
        """Average after an epoch, if that is wanted."""
        epoch = trainer.current_epoch
        if epoch > self._latest_update_epoch and self.should_update(epoch_idx=epoch):
            self._update(module)
            self._latest_update_epoch = epoch

    def _update(self, module: Module) -> None:
        assert self._average is not None
        self._average.update(module)

    def on_validation_start(self, trainer: Trainer, module: Module) -> None:
        """Put the averaged weights into the module while fit validates."""
        if trainer.state.fn == "fit" and not self._is_exchanged and self.num_averaged:
            self._exchange()

    def on_validation_end(self, trainer: Trainer, module: Module) -> None:
        """Put the current weights back."""
        self._put_back()

    def on_train_end(self, trainer: Trainer, module: Module) -> None:
        """Give the module the averaged weights."""
        self._put_back()
        if self._average is not None and self._average.count:
            self._average.copy_to(module)

    def on_exception(self, trainer: Trainer, module: Module, exception: BaseException) -> None:
        """Put the current weights back, if a validation was broken off."""
        self._put_back()

    def on_save_checkpoint(
        self, trainer: Trainer, module: Module, checkpoint: dict[str, Any]
    ) -> None:
        """Save the averaged weights as the module's, and the current ones beside them."""
        if self._average is None or self._owner is not module:
            return
        current, averaged = checkpoint["state_dict"], self._average.state_dict()
        if self._is_exchanged:
            current, averaged = averaged, current
        if self._average.count:
            checkpoint["state_dict"] = averaged
        if "callbacks" in checkpoint:  # else it holds weights alone
            checkpoint[_CURRENT] = current
            checkpoint[_AVERAGING] = self._average.extra_state()

    def _exchange(self) -> None:
        assert self._average is not None
        assert self._owner is not None
        self._average.exchange(self._owner)
        self._is_exchanged = not self._is_exchanged

    def _put_back(self) -> None:
        if self._is_exchanged:
            self._exchange()
