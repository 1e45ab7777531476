"""OptimizerMonitor, GradMonitor, LRMonitor: log gradients, optimizer metrics, learning rates."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks._options import FLAG, check_option, one_of
from trainer_hooks.callbacks.base import ScheduledCallback
from trainer_hooks.callbacks.monitor_base import (
    closes_window,
    gradient_norms,
    is_logged,
    norm_of_norms,
)
from trainer_hooks.clock.schedules import parse_when
from trainer_hooks.clock.timing import TimeUnit
from trainer_hooks.compat.composer.core.built_in import ComposerBuiltIn, composer_model
from trainer_hooks.metrics.scalars import floats

if TYPE_CHECKING:
    from torch import Tensor

    from trainer_hooks.clock.schedules import When
    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module

__all__ = ["GradMonitor", "LRMonitor", "OptimizerMonitor"]


_WHERE = "OptimizerMonitor"


class OptimizerMonitor(ScheduledCallback, ComposerBuiltIn):  # type: ignore[misc] # run_event
    """Log the norms of the gradients, and the optimizer's metrics of each parameter.

    The names are Composer's: `l2_norm/grad/global`, and of each parameter
    `l2_norm/grad/layer.weight`. The gradients are those of an optimizer step, unscaled and clipped.
    If the optimizer has a method `report_per_parameter_metrics(param, name, metrics)` that returns
    the metrics with its own added, as Composer's `DecoupledAdamW` has, those are logged too:
    `l2_norm/moment/layer.weight`, `l2_norm/param/...`, `l2_norm/update/...`.

    Everything is computed and copied from the device only if it is logged. A parameter without a
    gradient is left out; a step whose module cleared the gradients by itself logs nothing.

    Args:
        log_optimizer_metrics: whether the metrics of the optimizer are logged.
        batch_log_interval: how often to log: a number of optimizer steps, a time such as `"100ba"`,
            a filter, or a function of the clock.

    State: the counts when it last checked the interval.

    Raises:
        OptionError: an argument is outside its rule.

    Example::

        from trainer_hooks.compat.composer.callbacks import OptimizerMonitor

        monitor = OptimizerMonitor(batch_log_interval=5)
        trainer = Trainer(max_epochs=2, logger=CSVLogger("logs"), callbacks=[monitor])
        trainer.fit(module, train_loader)
    """

    def __init__(
        self, log_optimizer_metrics: bool = True, batch_log_interval: int | When = 10
    ) -> None:
        self.log_optimizer_metrics: bool = check_option(
            "log_optimizer_metrics", log_optimizer_metrics, _WHERE, FLAG
        )
        self.batch_log_interval = batch_log_interval
        super().__init__(
            parse_when(batch_log_interval, "batch_log_interval", _WHERE, bare=TimeUnit.STEP)
        )

    @property
    def state_key(self) -> str:
        """`OptimizerMonitor{'log_optimizer_metrics': ..., 'when': ...}`."""
        return self._generate_state_key(
            log_optimizer_metrics=self.log_optimizer_metrics, when=str(self._schedule.when)
        )

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Log the norms and metrics if that is due."""
        # in this order, since a check of the interval counts as its last one
        if not closes_window(trainer) or not self._schedule.is_due(trainer.clock):
            return
        values = self._values(trainer, module)
        if values:
            _log_tensors(trainer, values)

    def _values(self, trainer: Trainer, module: Module) -> dict[str, Tensor]:
        """Return the norms and metrics by name, on the devices where they were computed."""
        model = composer_model(module)
        norms = gradient_norms(model)
        if not norms:
            return {}
        optimizer_metrics: dict[str, Any] = {}
        if self.log_optimizer_metrics:
            parameters = dict(model.named_parameters())
            reports = _report_methods(trainer)
            for name in norms:
                report = reports.get(id(parameters[name]))
                if report is not None:
                    optimizer_metrics = report(parameters[name], name, optimizer_metrics)
        values = {
            "l2_norm/grad/global": norm_of_norms(list(norms.values())),
            **{f"l2_norm/grad/{name}": norm for name, norm in norms.items()},
            **optimizer_metrics,
        }
        return {name: torch.as_tensor(value, dtype=torch.float32) for name, value in values.items()}


def _log_tensors(trainer: Trainer, values: dict[str, Tensor]) -> None:
    """Log tensors of one element, which are copied from the device together."""
    metrics = floats({name: value.reshape(()) for name, value in values.items()})
    # the step of these gradients has been counted already
    trainer.log_metrics(metrics, trainer.progress.batches_stepped - 1)


def _report_methods(trainer: Trainer) -> dict[int, Any]:
    """Return the optimizer's method that reports on a parameter, by the parameter's id."""
    methods = {}
    for optimizer in trainer.optimizers:
        report = getattr(optimizer, "report_per_parameter_metrics", None)
        if callable(report):
            for group in optimizer.param_groups:
                methods.update({id(parameter): report for parameter in group["params"]})
    return methods


class GradMonitor(ComposerBuiltIn):
    """Log the norm of the gradients under Composer's older names.

    These are the L2 norms of the gradients of an optimizer step: of a whole window, unscaled and
    clipped. The norm of all gradients is `grad_l2_norm/step`, and that of a parameter
    `layer_grad_l2_norm/layer.weight`. They are computed and copied from the device only if they are
    logged, each `log_every_n_steps` steps. A parameter without a gradient is left out; a step whose
    module cleared the gradients by itself logs nothing.

    `OptimizerMonitor` has Composer's newer names, and the metrics of the optimizer;
    `GradientNormMonitor` can measure before clipping, and other norms.

    Args:
        log_layer_grad_norms: whether the norm of each parameter is logged.

    State: none.

    Raises:
        OptionError: the argument is outside its rule.

    Example::

        from trainer_hooks.compat.composer.callbacks import GradMonitor

        monitor = GradMonitor(log_layer_grad_norms=True)
        trainer = Trainer(
            max_epochs=2, logger=CSVLogger("logs"), log_every_n_steps=1, callbacks=[monitor]
        )
        trainer.fit(module, train_loader)
    """

    def __init__(self, log_layer_grad_norms: bool = False) -> None:
        self.log_layer_grad_norms: bool = check_option(
            "log_layer_grad_norms", log_layer_grad_norms, "GradMonitor", one_of(*(False, True))
        )

    @property
    def state_key(self) -> str:
        """`GradMonitor{'log_layer_grad_norms': ...}`."""
        return self._generate_state_key(log_layer_grad_norms=self.log_layer_grad_norms)

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Log the norms if that is due."""
        norms = gradient_norms(composer_model(module)) if is_logged(trainer) else {}
        if not norms:
            return
        values = {"grad_l2_norm/step": norm_of_norms(list(norms.values()))}
        if self.log_layer_grad_norms:
            values.update({f"layer_grad_l2_norm/{name}": norm for name, norm in norms.items()})
        _log_tensors(trainer, values)


class LRMonitor(ComposerBuiltIn):
    """Log the learning rates after each step, under Composer's names.

    These are `lr-SGD/group0`, `lr-SGD/group1` and so on: the optimizer's class and the number of
    the parameter group. The second optimizer of a class is `lr-SGD-1`. A rate is the one that the
    scheduler has set for the following step. It logs each `log_every_n_steps` steps.

    `LearningRateMonitor` logs the rates of the present step under Lightning's names, and also
    momenta and weight decay.

    State: none.

    Example::

        from trainer_hooks.compat.composer.callbacks import LRMonitor

        trainer = Trainer(
            max_epochs=2, logger=CSVLogger("logs"), log_every_n_steps=1, callbacks=[LRMonitor()]
        )
        trainer.fit(module, train_loader)
    """

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Log the rates if that is due."""
        if not is_logged(trainer):
            return
        rates: dict[str, float] = {}
        optimizers_of_class: Counter[str] = Counter()
        for optimizer in trainer.optimizers:
            class_name = type(optimizer).__name__
            # a second optimizer of a class would write over the rates of the first
            number_in_class = optimizers_of_class[class_name]
            name = f"lr-{class_name}" + (f"-{number_in_class}" if number_in_class else "")
            optimizers_of_class[class_name] += 1
            for number, group in enumerate(optimizer.param_groups):
                if group["lr"] is not None:  # Adafactor computes its own rate in each step
                    rates[f"{name}/group{number}"] = float(group["lr"])
        if rates:
            trainer.log_metrics(rates, trainer.progress.batches_stepped - 1)
