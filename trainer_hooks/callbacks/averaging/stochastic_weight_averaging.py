"""StochasticWeightAveraging: average the weights of the last epochs at a constant learning rate."""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim.swa_utils import SWALR

from trainer_hooks._log import log, warn
from trainer_hooks._options import Rule, is_int, is_number, one_of, option_rules, whole_number
from trainer_hooks.callbacks.averaging.running_average import (
    AVERAGING_FUNCTION,
    RunningAverage,
)
from trainer_hooks.callbacks.base import WeightOwner
from trainer_hooks.connector.state_types import checks_state
from trainer_hooks.errors import OptimizationError, OptionError, TrainerHooksWarning
from trainer_hooks.hooks.spec import keeps_optimizers
from trainer_hooks.module.optimization import LRSchedulerConfig, scheduler_state
from trainer_hooks.runtime.buffers import BufferRecord, load_buffers
from trainer_hooks.runtime.device import device_of_option

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor, nn

    from trainer_hooks.callbacks.averaging.running_average import AvgFn
    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module

_WHERE = "StochasticWeightAveraging"


class StochasticWeightAveraging(WeightOwner):
    """Average the weights of the last epochs while the learning rate is annealed to `swa_lrs`.

    From the epoch `swa_epoch_start` on, torch's `SWALR` replaces the module's scheduler, if it has
    one: the learning rate goes to `swa_lrs` in `annealing_epochs` epochs, and stays. At the start
    of each of these epochs the average is updated. During the training, validations and checkpoints
    are about the training's own weights, and the average is part of a checkpoint's callback state.
    When the training is over, at its end or after a stop, the module has the averaged weights. The
    statistics of its BatchNorm layers are then computed anew, in one more pass over the training
    batches, without gradients and without hooks.

    It takes one optimizer and at most one scheduler. `WeightAveraging` averages after each step
    instead, and evaluates with the average.

    Args:
        swa_lrs: the learning rate to anneal to, or one for each parameter group.
        swa_epoch_start: the first epoch to average at, counted from 1; or its number as a share of
            `max_epochs`, a float from 0.0 to 1.0: 0.5 of 6 epochs is the third.
        annealing_epochs: the number of epochs that the annealing takes.
        annealing_strategy: `"cos"` or `"linear"`: the curve of the annealing.
        avg_fn: `(average, weight, number averaged before) -> average`; the mean of all unless
            given.
        device: the device of the average; None for the module's own.

    Attributes:
        n_averaged: the number of updates, as a tensor; None before the first.
        swa_start: the index of the first epoch to average at, from 0 on; known in a fit.
        swa_end: the index of the last one, or infinity.

    State: the average, its changed buffers that no `state_dict` holds, its number of updates, the
    epoch of the last update, and the scheduler's state.

    Raises:
        OptionError: an argument is outside its rule, or makes no sense for the run's `max_epochs`.
        OptimizationError: in a run, there is not one optimizer, or several schedulers.
        CallbackError: in a run, another callback averages weights or changes the module's layers.

    Example::

        swa = StochasticWeightAveraging(swa_lrs=0.05, swa_epoch_start=0.5, annealing_epochs=1)
        trainer = Trainer(max_epochs=2, callbacks=[swa])
        trainer.fit(module, train_loader, val_loader)
    """

    @option_rules(
        swa_lrs=Rule(
            "a positive number, or a list of them",
            lambda lrs: (
                all(map(_is_positive, lrs)) and bool(lrs)
                if isinstance(lrs, list | tuple)
                else _is_positive(lrs)
            ),
            "Pass the learning rate to go to, such as 0.05.",
        ),
        swa_epoch_start=Rule(
            "an int of at least 1, or a float from 0.0 to 1.0",
            lambda start: is_int(start, 1) or (isinstance(start, float) and 0 <= start <= 1),
            "Pass the first epoch to average at, counted from 1, or a share of max_epochs.",
        ),
        annealing_epochs=whole_number(),
        annealing_strategy=one_of("cos", "linear"),
        avg_fn=AVERAGING_FUNCTION,
    )
    def __init__(
        self,
        swa_lrs: float | list[float],
        swa_epoch_start: int | float = 0.8,
        annealing_epochs: int = 10,
        annealing_strategy: str = "cos",
        avg_fn: AvgFn | None = None,
        device: torch.device | str | None = torch.device("cpu"),  # noqa: B008 - it is immutable
    ) -> None:
        self._swa_lrs = list(swa_lrs) if isinstance(swa_lrs, list | tuple) else swa_lrs
        self._swa_epoch_start = swa_epoch_start
        self._annealing_epochs, self._annealing_strategy = annealing_epochs, annealing_strategy
        self._avg_fn = avg_fn
        self._device = device_of_option(device, "device", _WHERE)
        self.swa_start: int = 0
        self.swa_end: int | float = math.inf
        self._reset()

    def _reset(self) -> None:
        self._average: RunningAverage | None = None
        self._scheduler: SWALR | None = None
        self._pending: dict[str, Any] | None = None
        self._latest_update_epoch = -1
        self._buffers = BufferRecord()

    @property
    def n_averaged(self) -> Tensor | None:
        """The number of updates of the average, or None before the first."""
        return None if self._average is None else torch.tensor(self._average.count)

    @property
    def _average_model(self) -> Module | None:
        """The averaged module, which programs for Lightning read under this name."""
        return None if self._average is None else self._average.module

    @staticmethod
    def pl_module_contains_batch_norm(pl_module: torch.nn.Module) -> bool:
        """Return whether a module has BatchNorm layers whose statistics a forward changes."""
        return any(True for _ in _layers_with_statistics(pl_module))

    def state_dict(self) -> dict[str, Any]:
        """Return the average, its number of updates, and the scheduler's state."""
        if self._pending is not None:
            # a checkpoint that is saved before `_restore` must not lose the restored average
            return dict(self._pending)
        average = self._average
        buffers = None if average is None else self._buffers.changed(average.module)
        return {
            "n_averaged": 0 if average is None else average.count,
            "latest_update_epoch": self._latest_update_epoch,
            "scheduler_state": None
            if self._scheduler is None
            else scheduler_state(self._scheduler),
            "average_model_state": None if average is None else average.state_dict(),
            **({"average_buffers": buffers} if buffers else {}),
        }

    @checks_state(
        {
            "n_averaged": int,
            "latest_update_epoch": int,
            "scheduler_state": dict | None,
            "average_model_state": dict | None,
        },
        {"average_buffers": dict[str, Any]},
    )
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep the state until there is a copy of the module to load the average into."""
        self._pending = state_dict

    def on_load_checkpoint(
        self, trainer: Trainer, module: Module, checkpoint: dict[str, Any]
    ) -> None:
        """Install the `SWALR` scheduler, whose state is about to be restored."""
        if trainer.state.fn != "fit":
            return
        self._reset()
        state = checkpoint.get("callbacks", {}).get(self.state_key)
        if state is not None and state["scheduler_state"] is not None:
            require_swappable(trainer)
            self._swap_schedulers(trainer)

    @keeps_optimizers
    def on_after_load(
        self, trainer: Trainer, module: Module, checkpoint: dict[str, Any] | None
    ) -> None:
        """Restore the average of a checkpoint, unless layers are yet to be added."""
        if trainer.state.fn != "fit":
            self._pending = None
            return
        # before the loop restores the buffers: with those that a resume will build, too
        self._buffers.begin(module)
        added = (checkpoint or {}).get("trainer_hooks", {}).get("added_weights", ())
        # early where it can be: an error of a resume puts the module back
        if set(added) <= module.state_dict().keys():
            self._restore(module)

    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """Restore the average of a module to which `on_fit_start` has added layers."""
        self._restore(module)

    def _restore(self, module: Module) -> None:
        """Load the restored state, if there is one, into a new average of the module."""
        state, self._pending = self._pending, None
        if state is None:
            return
        self._latest_update_epoch = state["latest_update_epoch"]
        if state["n_averaged"]:
            self._average = self._new_average(module)
            # the state itself is also the extra state: the count has the same key in both
            self._average.load(state["average_model_state"], state)
            load_buffers(self._average.module, state.get("average_buffers", {}))

    @keeps_optimizers
    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Determine the first and the last epoch to average at."""
        require_swappable(trainer)
        self.swa_start = first_epoch(self._swa_epoch_start, trainer.max_epochs)
        self.swa_end = math.inf if trainer.max_epochs < 0 else trainer.max_epochs - 1
        if self.swa_start > self.swa_end:
            warn(
                f"swa_epoch_start {self._swa_epoch_start!r} of {_WHERE}: this fit has "
                f"{trainer.max_epochs} epochs, so nothing will be averaged. Pass a lower number.",
                TrainerHooksWarning,
            )

    def on_train_epoch_start(self, trainer: Trainer, module: Module) -> None:
        """Update the average, from the first epoch to average at on."""
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
        # a resume at the start of an epoch must not take the same weights in twice
        if epoch <= self._latest_update_epoch:
            return
        if self._average is None:
            self._average = self._new_average(module)
        # at an epoch's start these are the weights with which the epoch before ended
        self._update(self._average, module)
        self._latest_update_epoch = epoch

    def on_train_end(self, trainer: Trainer, module: Module) -> None:
        """Copy the averaged weights into the module, and recompute the BatchNorm statistics."""
        average = self._average
        # a run that leaves early is going to be resumed, with its own weights
        if average is None or not average.count or trainer.is_leaving:
            return
        with torch.no_grad():
            # parameters alone: averaged BatchNorm statistics would not fit the averaged weights,
            # so they are computed anew below
            averaged = dict(average.module.named_parameters())
            for name, parameter in module.named_parameters():
                parameter.copy_(averaged[name])
        if not self.pl_module_contains_batch_norm(module):
            return
        if (
            not module.automatic_optimization
            or trainer.num_training_batches == math.inf
            or not trainer.calls_steps
        ):
            warn(
                f"{_WHERE}: the statistics of {type(module).__qualname__}'s BatchNorm layers do "
                "not belong to the averaged weights, as a module that optimizes by itself, a loop "
                "of your own and a loader without length cannot be gone through again. Call "
                "torch.optim.swa_utils.update_bn(loader, module).",
                TrainerHooksWarning,
            )
            return
        # the replay leaves each layer's mode, and only layers in train mode fill their statistics
        with restarted_statistics(module):
            trainer.replay_training_data()

    def _update(self, average: RunningAverage, module: Module) -> None:
        """Update the average, by `update_parameters` of a subclass if it has one."""
        update_parameters = type(self).update_parameters
        if update_parameters is StochasticWeightAveraging.update_parameters:
            average.update(module)
            return
        count = torch.tensor(average.count)
        update_parameters(average.module, module, count, self._avg_fn or self.avg_fn)
        # such a method may leave the count alone
        average.count = max(int(count), average.count + 1)

    # under these two names subclasses for Lightning override the first, and call both

    @staticmethod
    def update_parameters(
        average_model: torch.nn.Module, model: torch.nn.Module, n_averaged: Tensor, avg_fn: AvgFn
    ) -> None:
        """Update the parameters of an average in place, and count the update.

        Args:
            average_model: the copy that holds the average.
            model: the module.
            n_averaged: the number of updates before this one; it is increased.
            avg_fn: returns a new average of one tensor.
        """
        with torch.no_grad():
            pairs = zip(average_model.parameters(), model.parameters(), strict=True)
            for average, parameter in pairs:
                current = parameter.to(average.device)
                average.copy_(avg_fn(average, current, n_averaged) if n_averaged else current)
        n_averaged += 1

    @staticmethod
    def avg_fn(
        averaged_model_parameter: Tensor, model_parameter: Tensor, num_averaged: Tensor | int
    ) -> Tensor:
        """Return the mean of all weights so far, for one tensor."""
        change = model_parameter - averaged_model_parameter
        return averaged_model_parameter + change / (num_averaged + 1)

    def _new_average(self, module: Module) -> RunningAverage:
        # without buffers, since the statistics of BatchNorm are computed anew at the end
        return RunningAverage(module, self._device, avg_fn=self._avg_fn)

    def _swap_schedulers(self, trainer: Trainer) -> None:
        """Replace the module's scheduler by a `SWALR`."""
        optimizer, configs = trainer.optimizers[0], trainer.lr_scheduler_configs
        groups = len(optimizer.param_groups)
        lrs = self._swa_lrs if isinstance(self._swa_lrs, list) else [self._swa_lrs] * groups
        if len(lrs) != groups:
            raise OptionError(
                f"swa_lrs {lrs!r} of {_WHERE}: the optimizer has {groups} parameter groups, so "
                f"there must be as many. Pass a list of {groups}, or one number for all."
            )
        self._scheduler = SWALR(
            optimizer,
            lrs,  # type: ignore[arg-type]
            self._annealing_epochs,
            self._annealing_strategy,  # type: ignore[arg-type]
        )
        swapped = [type(config.scheduler).__name__ for config in configs]
        log.info("%s: SWALR takes the place of %s", _WHERE, *(swapped or ["no scheduler"]))
        # in place: the trainer steps the schedulers of this list
        configs[:] = [LRSchedulerConfig(self._scheduler)]


@contextmanager
def restarted_statistics(module: nn.Module) -> Iterator[None]:
    """Compute BatchNorm statistics anew from the forwards in the context, as means over all.

    Layers that are frozen, in eval mode or without statistics stay as they are.
    """
    layers = list(_layers_with_statistics(module))
    momenta = [layer.momentum for layer in layers]
    try:
        for layer in layers:
            # momentum None makes torch average over all batches instead of exponentially
            layer.reset_running_stats()
            layer.momentum = None
        yield
    finally:
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum


def _layers_with_statistics(module: nn.Module) -> Iterator[_BatchNorm]:
    for part in module.modules():
        # no forward would fill the statistics of a layer in eval mode again after a reset
        if isinstance(part, _BatchNorm) and part.training and part.track_running_stats:
            yield part


def first_epoch(start: int | float, max_epochs: int) -> int:
    """Return the index of the first epoch to average at.

    Raises:
        OptionError: `start` is a share and there is no `max_epochs`.
    """
    if isinstance(start, float) and max_epochs < 0:
        raise OptionError(
            f"swa_epoch_start {start!r} of {_WHERE}: it is a share of max_epochs, and this trainer "
            "has no such limit. Pass an int, the first epoch to average at."
        )
    # a share is of the planned epochs, also where another limit ends the fit earlier
    epoch = int(max_epochs * start) if isinstance(start, float) else start
    # from the epoch's number, counted from 1 as Lightning does, to its index
    return max(epoch - 1, 0)


def require_swappable(trainer: Trainer) -> None:
    """Check that there is one optimizer and at most one scheduler.

    Raises:
        OptimizationError: there are more or fewer.
    """
    optimizers, schedulers = len(trainer.optimizers), len(trainer.lr_scheduler_configs)
    if optimizers != 1 or schedulers > 1:
        raise OptimizationError(
            f"StochasticWeightAveraging with {optimizers} optimizers and {schedulers} schedulers: "
            "it takes one optimizer and at most one scheduler. Return as many from "
            "configure_optimizers, or use WeightAveraging."
        )


def _is_positive(value: Any) -> bool:
    return is_number(value) and value > 0
