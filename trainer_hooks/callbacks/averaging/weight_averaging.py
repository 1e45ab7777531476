"""WeightAveraging and EMAWeightAveraging: evaluate with an average of the weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.optim.swa_utils import get_ema_multi_avg_fn

from trainer_hooks._log import warn
from trainer_hooks._options import FLAG, Combination, option_rules, whole_number
from trainer_hooks.callbacks.averaging.running_average import (
    AVERAGING_FUNCTION,
    DECAY,
    ONE_AVERAGING_FUNCTION,
    ExchangeableAverage,
    RunningAverage,
)
from trainer_hooks.callbacks.base import WeightOwner
from trainer_hooks.connector.state_types import checks_state
from trainer_hooks.errors import TrainerHooksWarning
from trainer_hooks.hooks.spec import keeps_optimizers
from trainer_hooks.runtime.device import device_of_option

if TYPE_CHECKING:
    import torch
    from torch.optim.swa_utils import AveragedModel

    from trainer_hooks.callbacks.averaging.running_average import AvgFn, MultiAvgFn
    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module

_CURRENT, _AVERAGING = "current_model_state", "averaging_state"

"""The checkpoint keys of the current weights and of the average's extra state, as in Lightning."""


class WeightAveraging(WeightOwner):
    """Average the weights of the optimizer steps, and evaluate with the average.

    The average is updated after optimizer steps or epochs, as `should_update` says: after each step
    unless you override it. While fit validates, the module has the averaged weights, so metrics,
    early stopping and the best checkpoint are about them; then the training goes on with its own
    weights. When the training is over the module has the averaged weights.

    A checkpoint's `state_dict` holds the averaged weights, so it loads into a plain module that
    predicts as the validated one did. The weights to train on with are beside it, under
    `current_model_state`; a file of weights alone holds the averaged ones.

    Before the first update all of this is about the module's own weights. Outside validation, also
    in `on_train_epoch_end`, the module has its own weights. A checkpoint that was saved without
    this callback can be resumed, with a warning: the average then begins there. Averaging the
    parameters of a module that is pruned or quantized at the same time is refused.

    Args:
        device: the device of the average; the module's own unless given.
        use_buffers: whether buffers, such as the statistics of BatchNorm, are averaged too; if not,
            those of the last update are kept.
        avg_fn: `(average, weight, number averaged before) -> average`, for one tensor; the mean of
            all unless given. `torch.optim.swa_utils` has some.
        multi_avg_fn: the same for lists of tensors, in place: faster.

    State: the step and the epoch of the last update, and the copy's changed buffers that no
    `state_dict` holds; the checkpoint itself holds both sets of weights, as Lightning's does.

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

    @option_rules(
        ONE_AVERAGING_FUNCTION,
        use_buffers=FLAG,
        avg_fn=AVERAGING_FUNCTION,
        multi_avg_fn=AVERAGING_FUNCTION,
    )
    def __init__(
        self,
        device: torch.device | str | int | None = None,
        use_buffers: bool = True,
        *,
        avg_fn: AvgFn | None = None,
        multi_avg_fn: MultiAvgFn | None = None,
    ) -> None:
        self._device = device_of_option(device, "device", type(self).__name__)
        self._use_buffers = use_buffers
        self._avg_fn, self._multi_avg_fn = avg_fn, multi_avg_fn
        self._average = ExchangeableAverage(self._make_average)
        self._reset()

    def _make_average(self, module: Module) -> RunningAverage:
        return RunningAverage(
            module, self._device, self._use_buffers, self._avg_fn, self._multi_avg_fn
        )

    def _reset(self) -> None:
        self._average.reset()
        self._latest_update_step = 0
        self._latest_update_epoch = -1
        # the last step seen: not the last update, as `should_update` may have declined that step
        self._latest_step = 0

    @property
    def averaged_module(self) -> Module | None:
        """A copy of the module with the averaged weights; None before the first fit."""
        average = self._average.average
        return None if average is None else average.module

    @property
    def _average_model(self) -> AveragedModel | None:
        """Torch's AveragedModel, which programs for Lightning read under this name."""
        average = self._average.average
        return None if average is None else average.model

    @property
    def num_averaged(self) -> int:
        """The number of updates of the average."""
        return self._average.count

    def should_update(self, step_idx: int | None = None, epoch_idx: int | None = None) -> bool:
        """Return whether to update the average after this step or epoch; override it to choose.

        Args:
            step_idx: the index of the optimizer step just made, from 0 on; None after an epoch.
            epoch_idx: the index of the epoch that is ending, from 0 on; None after a step.
        """
        return step_idx is not None

    def state_dict(self) -> dict[str, Any]:
        """Return the step and epoch of the last update, the last step seen, and buffers."""
        return {
            "latest_update_step": self._latest_update_step,
            "latest_update_epoch": self._latest_update_epoch,
            "latest_step": self._latest_step,
            # here, and not beside the weights: a validation's snapshot has them from its start
            **self._average.buffer_state(),
        }

    @checks_state(
        {"latest_update_step": int},
        {"latest_update_epoch": int, "latest_step": int, "average_buffers": dict[str, Any]},
    )
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state; Lightning's checkpoints have its first item alone."""
        self._latest_update_step = state_dict["latest_update_step"]
        self._latest_update_epoch = state_dict.get("latest_update_epoch", -1)
        self._latest_step = state_dict.get("latest_step", self._latest_update_step)
        self._average.load_buffer_state(state_dict)

    def on_before_restore(
        self, trainer: Trainer, module: Module, checkpoint: dict[str, Any]
    ) -> None:
        """Let the trainer load the current weights and not the averaged ones."""
        if trainer.state.fn != "fit":
            if module is self._average.owner:
                self._reset()  # the average belongs to the weights that are replaced now
            return
        self._reset()
        if _CURRENT in checkpoint and _AVERAGING in checkpoint:
            self._average.load_state_dict(
                {"average": checkpoint["state_dict"], "average_extra": checkpoint[_AVERAGING]}
            )
            checkpoint["state_dict"] = checkpoint[_CURRENT]  # the trainer loads this entry next
        else:
            warn(
                f"the checkpoint holds no average of weights: that of {type(self).__name__} begins "
                "with the weights that it has.",
                TrainerHooksWarning,
            )

    @keeps_optimizers
    def on_after_load(
        self, trainer: Trainer, module: Module, checkpoint: dict[str, Any] | None
    ) -> None:
        """Copy the module, which is complete and on its device now."""
        if trainer.state.fn != "fit":
            return
        is_restored = self._average.has_pending_state
        self._average.copy(module)
        if checkpoint is not None and not is_restored:
            # the steps before a checkpoint without an average were not seen: no update for them
            self._latest_step = trainer.global_step

    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """Check that `on_fit_start` of other callbacks has added no layers."""
        self._average.require_same_layers(module)

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Update the average after an optimizer step, if `should_update` says so."""
        self._update_after_step(trainer, module)

    def on_train_batches_end(self, trainer: Trainer, module: Module) -> None:
        """Update the average after the step of a window that the epoch's end cut short."""
        self._update_after_step(trainer, module)

    def _update_after_step(self, trainer: Trainer, module: Module) -> None:
        # with accumulation most batches make no step
        if trainer.global_step <= self._latest_step:
            return
        steps = self._latest_step = trainer.global_step
        if self.should_update(step_idx=steps - 1):
            self._average.copy(module).update(module)
            self._latest_update_step = steps

    def on_train_epoch_end(self, trainer: Trainer, module: Module) -> None:
        """Update the average after an epoch, if `should_update` says so."""
        epoch = trainer.current_epoch
        # a resume may come to this hook of the same epoch again
        if epoch > self._latest_update_epoch and self.should_update(epoch_idx=epoch):
            self._average.copy(module).update(module)
            self._latest_update_epoch = epoch

    def on_validation_start(self, trainer: Trainer, module: Module) -> None:
        """Put the averaged weights into the module while fit validates."""
        # outside of a fit the module keeps the weights that the user evaluates
        if trainer.state.fn == "fit" and not self._average.is_exchanged:
            self._swap_models(module)

    def on_validation_end(self, trainer: Trainer, module: Module) -> None:
        """Restore the current weights."""
        # without an update yet the first call changed nothing, and so does the second
        if trainer.state.fn == "fit" and (self._average.is_exchanged or not self._average.count):
            self._swap_models(module)

    # under these two names subclasses for Lightning override them

    def _swap_models(self, pl_module: Module) -> None:
        """Put the averaged weights into the module, if there are any; the second call, its own."""
        if self._average.is_exchanged:
            self._average.take_out()
        else:
            self._average.put_in()

    def _copy_average_to_current(self, pl_module: Module) -> None:
        """Copy the averaged weights, if there are any, into the module."""
        average = self._average.average
        # before the first update the copy holds the weights that the training began with
        if average is not None and average.count:
            # copied and not exchanged: the training is over, so nobody needs its own weights again
            average.copy_to(pl_module)

    def on_train_end(self, trainer: Trainer, module: Module) -> None:
        """Copy the averaged weights into the module."""
        # a StopTraining inside a validation comes here without `on_validation_end`
        self._average.take_out()
        self._copy_average_to_current(module)

    def on_exception(self, trainer: Trainer, module: Module, exception: BaseException) -> None:
        """Restore the current weights, if a validation was broken off."""
        self._average.take_out()

    def on_save_checkpoint(
        self, trainer: Trainer, module: Module, checkpoint: dict[str, Any]
    ) -> None:
        """Save the averaged weights as the module's, and the current ones beside them."""
        average = self._average.average
        # the trainer may save another module by now, to which the average does not belong
        if average is None or self._average.owner is not module:
            return
        current, averaged = checkpoint["state_dict"], average.state_dict()
        # during a validation the module holds the average, and the copy the current weights
        if self._average.is_exchanged:
            current, averaged = averaged, current
        if average.count:
            checkpoint["state_dict"] = averaged
        if "callbacks" in checkpoint:  # else a file of weights alone is saved
            checkpoint[_CURRENT] = current
            checkpoint[_AVERAGING] = average.extra_state()


class EMAWeightAveraging(WeightAveraging):
    """Keep an exponential moving average of the weights, and evaluate with it.

    Each update makes the average `decay` times itself plus `1 - decay` times the weights; the first
    update copies the weights. In all else it is as `WeightAveraging`.

    The average is updated after the steps that `update_every_n_steps` and `update_starting_at_step`
    choose, and also at the end of the epochs that `update_starting_at_epoch` chooses. To average at
    the end of epochs alone, pass `update_every_n_steps=0`.

    Args:
        device: the device of the average; the module's own unless given.
        use_buffers: whether buffers are averaged too; if not, those of the last update are kept.
        decay: the weight of the old average in a new one, from 0 to 1.
        update_every_n_steps: the average is updated after steps whose index is a multiple of this;
            0 for none.
        update_starting_at_step: the index of the first step after which it is updated; the first
            step unless given.
        update_starting_at_epoch: the index of the first epoch at whose end it is updated; at no
            epoch's end unless given.

    Attributes:
        decay: as given.
        update_every_n_steps: as given.
        update_starting_at_step: as given.
        update_starting_at_epoch: as given.

    State: as `WeightAveraging`.

    Raises:
        OptionError: an argument is outside its rule, or there would never be an update.

    Example::

        trainer = Trainer(max_epochs=2, callbacks=[EMAWeightAveraging(decay=0.99)])
        trainer.fit(module, train_loader, val_loader)
    """

    @option_rules(
        Combination(
            ("update_every_n_steps", "update_starting_at_epoch"),
            lambda every, epoch: every != 0 or epoch is not None,
            "without update_starting_at_epoch nothing would ever be averaged. Pass one of them.",
            "update_every_n_steps {update_every_n_steps!r} of {owner}",
        ),
        decay=DECAY,
        update_every_n_steps=whole_number(),
        update_starting_at_step=whole_number().unless(None),
        update_starting_at_epoch=whole_number().unless(None),
    )
    def __init__(
        self,
        device: torch.device | str | int | None = None,
        use_buffers: bool = True,
        decay: float = 0.999,
        update_every_n_steps: int = 1,
        update_starting_at_step: int | None = None,
        update_starting_at_epoch: int | None = None,
    ) -> None:
        average = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]
        super().__init__(device, use_buffers, multi_avg_fn=average)
        self.decay = decay
        self.update_every_n_steps = update_every_n_steps
        self.update_starting_at_step = update_starting_at_step
        self.update_starting_at_epoch = update_starting_at_epoch

    def should_update(self, step_idx: int | None = None, epoch_idx: int | None = None) -> bool:
        """Return whether the arguments choose this step or epoch for an update."""
        every, first = self.update_every_n_steps, self.update_starting_at_step
        if step_idx is not None and every and step_idx % every == 0 and step_idx >= (first or 0):
            return True
        start = self.update_starting_at_epoch
        return epoch_idx is not None and start is not None and epoch_idx >= start
