"""StochasticWeightAveraging: average the weights of the last epochs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.swa_utils import SWALR

from trainer_hooks._log import log, warn
from trainer_hooks.callbacks.averaging.average import Average, check_averaging, check_device
from trainer_hooks.callbacks.averaging.batch_norm import has_statistics, restarted_statistics
from trainer_hooks.callbacks.averaging.swa_options import (
    check_annealing,
    check_epoch_start,
    check_swa_lrs,
    first_epoch,
    require_swappable,
)
from trainer_hooks.callbacks.weight_owner import WeightOwner
from trainer_hooks.errors import TrainerHooksWarning
from trainer_hooks.module import LRSchedulerConfig

if TYPE_CHECKING:
    from torch import Tensor

    from trainer_hooks.callbacks.averaging.average import AvgFn
    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["StochasticWeightAveraging"]

_WHERE = "StochasticWeightAveraging"


class StochasticWeightAveraging(WeightOwner):
    """Average the weights of the last epochs, while the learning rate is brought to `swa_lrs`.

    From the epoch `swa_epoch_start` on, torch's `SWALR` takes the place of the module's scheduler,
    if it has one: the learning rate goes to `swa_lrs` in `annealing_epochs` epochs, and stays. At
    the start of each of these epochs the weights are averaged in. While the training goes on,
    validations and checkpoints are about its own weights, and the average is part of a checkpoint's
    callback state. When the training is over, by its end or because somebody stopped it, the module
    has the averaged weights. The statistics of its BatchNorm layers are then computed anew, in one
    more pass over the training batches, without gradients and without hooks.

    It takes one optimizer and at most one scheduler. `WeightAveraging` averages after each step
    instead, and evaluates with the average.

    Args:
        swa_lrs: the learning rate to go to, or one for each parameter group.
        swa_epoch_start: the first epoch to average at, counted from 1; or the share of `max_epochs`
            before it, as a float from 0.0 to 1.0.
        annealing_epochs: how many epochs the learning rate takes.
        annealing_strategy: `"cos"` or `"linear"`: on what curve.
        avg_fn: `(average, weight, number averaged before) -> average`; the mean of all unless
            given.
        device: where the average is kept; None for where the module is.

    Attributes:
        n_averaged: how many epochs' weights were averaged in, as a tensor; None before the first.
        swa_start: the index of the first epoch to average at, from 0 on; known in a fit.
        swa_end: the index of the last one, or infinity.

    State: the average, how many it is of, the last epoch that was averaged in, and the scheduler's
    state.

    Raises:
        OptionError: an argument is outside its rule, or makes no sense for the run's `max_epochs`.
        OptimizationError: in a run, there is not one optimizer, or several schedulers.
        CallbackError: in a run, another callback averages weights or changes the module's layers.

    Example::

        swa = StochasticWeightAveraging(swa_lrs=0.05, swa_epoch_start=0.5, annealing_epochs=1)
        trainer = Trainer(max_epochs=2, callbacks=[swa])
        trainer.fit(module, train_loader, val_loader)
    """

    def __init__(
        self,
        swa_lrs: float | list[float],
        swa_epoch_start: int | float = 0.8,
        annealing_epochs: int = 10,
        annealing_strategy: str = "cos",
        avg_fn: AvgFn | None = None,
        device: torch.device | str | None = torch.device("cpu"),  # noqa: B008 - it is immutable
    ) -> None:
        self._swa_lrs = check_swa_lrs(swa_lrs, _WHERE)
        self._swa_epoch_start = check_epoch_start(swa_epoch_start, _WHERE)
        check_annealing(annealing_epochs, annealing_strategy, _WHERE)
        self._annealing_epochs, self._annealing_strategy = annealing_epochs, annealing_strategy
        check_averaging(avg_fn, None, _WHERE)
        self._avg_fn = avg_fn
        self._device = check_device(device, _WHERE)
        self.swa_start: int = 0
        self.swa_end: int | float = math.inf
        self._forget()

    def _forget(self) -> None:
        self._average: Average | None = None
        self._scheduler: SWALR | None = None
        self._pending: dict[str, Any] | None = None
        self._latest_update_epoch = -1

    @property
    def n_averaged(self) -> Tensor | None:
        """How many epochs' weights were averaged in, or None before the first."""
        return None if self._average is None else torch.tensor(self._average.count)

    @staticmethod
    def pl_module_contains_batch_norm(pl_module: torch.nn.Module) -> bool:
        """Return whether a module has BatchNorm layers whose statistics a forward changes."""
        return has_statistics(pl_module)

    def state_dict(self) -> dict[str, Any]:
        """Return the average and how far it is."""
        if self._pending is not None:
            return dict(self._pending)
        average = self._average
        return {
            "n_averaged": 0 if average is None else average.count,
            "latest_update_epoch": self._latest_update_epoch,
            "scheduler_state": None if self._scheduler is None else self._scheduler.state_dict(),
            "average_model_state": None if average is None else average.state_dict(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep the average until there is a copy of the module to put it into."""
        self._pending = state_dict

    def on_load_checkpoint(
        self, trainer: Trainer, module: Module, checkpoint: dict[str, Any]
    ) -> None:
        """Put the scheduler in place whose state is about to be restored."""
        if trainer.state.fn != "fit":
            return
        self._forget()
        state = checkpoint.get("callbacks", {}).get(self.state_key)
        if state is not None and state["scheduler_state"] is not None:
            require_swappable(trainer)
            self._swap_schedulers(trainer)

    def on_after_load(
        self, trainer: Trainer, module: Module, checkpoint: dict[str, Any] | None
    ) -> None:
        """Go on with the average of a checkpoint."""
        state, self._pending = self._pending, None
        if state is None or trainer.state.fn != "fit":
            return
        self._latest_update_epoch = state["latest_update_epoch"]
        if state["n_averaged"]:
            self._average = self._new_average(module)
            self._average.load(state["average_model_state"], state)

    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """See when to begin, and whether that can be done."""
        require_swappable(trainer)
        self.swa_start = first_epoch(self._swa_epoch_start, trainer.max_epochs, _WHERE)
        self.swa_end = math.inf if trainer.max_epochs < 0 else trainer.max_epochs - 1
        if self.swa_start > self.swa_end:
            warn(
                f"swa_epoch_start {self._swa_epoch_start!r} of {_WHERE}: this fit has "
                f"{trainer.max_epochs} epochs, so nothing will be averaged. Pass a lower number.",
                TrainerHooksWarning,
            )

    def on_train_epoch_start(self, trainer: Trainer, module: Module) -> None:
        """Average the weights in, from the first epoch on that is averaged at."""
        epoch = trainer.current_epoch
        if self._scheduler is None:
            if epoch < self.swa_start:
                return
            if epoch > self.swa_start:
                warn(
                    f"{_WHERE} begins at epoch {epoch} and not at {self.swa_start}: the training "
                    "was resumed from a checkpoint in which nothing was averaged.",
                    TrainerHooksWarning,
                )
            self._swap_schedulers(trainer)
        if epoch <= self._latest_update_epoch:
            return
        if self._average is None:
            self._average = self._new_average(module)
        self._average.update(module)
        self._latest_update_epoch = epoch

    def on_train_end(self, trainer: Trainer, module: Module) -> None:
        """Give the module the averaged weights, and compute statistics for them."""
        average = self._average
        if average is None or not average.count or trainer.is_leaving:
            return
        with torch.no_grad():
            averaged = dict(average.module.named_parameters())
            for name, parameter in module.named_parameters():
                parameter.copy_(averaged[name])
        if not has_statistics(module):
            return
        if not module.automatic_optimization or trainer.num_training_batches == math.inf:
            warn(
                f"{_WHERE}: the statistics of {type(module).__qualname__}'s BatchNorm layers do "
                "not belong to the averaged weights, as a module that optimizes by itself and a "
                "loader without length cannot be gone through again. Call "
                "torch.optim.swa_utils.update_bn(loader, module).",
                TrainerHooksWarning,
            )
            return
        with restarted_statistics(module):
            trainer.replay_training_data()

    def _new_average(self, module: Module) -> Average:
        return Average(module, self._device, avg_fn=self._avg_fn)

    def _swap_schedulers(self, trainer: Trainer) -> None:
        """Let a `SWALR` drive the optimizer instead of the module's scheduler."""
        optimizer, configs = trainer.optimizers[0], trainer.lr_scheduler_configs
        groups = len(optimizer.param_groups)
        lrs = self._swa_lrs if isinstance(self._swa_lrs, list) else [self._swa_lrs] * groups
        check_swa_lrs(lrs, _WHERE, groups)
        self._scheduler = SWALR(
            optimizer,
            lrs,  # type: ignore[arg-type]
            self._annealing_epochs,
            self._annealing_strategy,  # type: ignore[arg-type]
        )
        swapped = [type(config.scheduler).__name__ for config in configs]
        log.info("%s: SWALR takes the place of %s", _WHERE, *(swapped or ["no scheduler"]))
        configs[:] = [LRSchedulerConfig(self._scheduler)]
