"""OptimizerMonitor: log norms of the gradients, and what the optimizer says of each parameter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks.callbacks.monitoring import check_choice
from trainer_hooks.callbacks.on_cue import OnCue
from trainer_hooks.callbacks.watching.due import closes_window
from trainer_hooks.callbacks.watching.norms import gradient_norms, norm_of_norms
from trainer_hooks.clock import TimeUnit, parse_when

if TYPE_CHECKING:
    from torch import Tensor

    from trainer_hooks.clock import When
    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["OptimizerMonitor"]

_WHERE = "OptimizerMonitor"


class OptimizerMonitor(OnCue):
    """Log norms of the gradients, and what the optimizer says of each parameter.

    The names are Composer's: `l2_norm/grad/global`, and of each parameter
    `l2_norm/grad/layer.weight`. The gradients are those that the optimizer stepped with, unscaled
    and clipped. Where the optimizer has a method `report_per_parameter_metrics(param, name,
    metrics)` that returns the metrics with its own added, as Composer's `DecoupledAdamW` has, those
    are logged too: `l2_norm/moment/layer.weight`, `l2_norm/param/...`, `l2_norm/update/...`.

    Everything is computed and copied only where it is logged. A parameter without a gradient is
    left out; a step whose module cleared the gradients by itself logs nothing.

    Args:
        log_optimizer_metrics: whether the optimizer is asked.
        batch_log_interval: how often it is logged: a number of optimizer steps, a time such as
            `"100ba"`, a filter, or a function of the clock.

    State: the counts when it last looked.

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
        self.log_optimizer_metrics: bool = check_choice(
            "log_optimizer_metrics", log_optimizer_metrics, _WHERE, (True, False)
        )
        self.batch_log_interval = batch_log_interval
        super().__init__(
            parse_when(batch_log_interval, "batch_log_interval", _WHERE, bare=TimeUnit.STEP)
        )

    @property
    def state_key(self) -> str:
        """The class with what it logs and when."""
        return self._generate_state_key(
            log_optimizer_metrics=self.log_optimizer_metrics, when=str(self._cue.when)
        )

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Log, if it is due."""
        if not closes_window(trainer) or not self._cue.is_due(trainer.clock):
            return
        values = self._values(trainer, module)
        if values:
            device = values["l2_norm/grad/global"].device
            stacked = torch.stack([v.detach().to(device).reshape(()) for v in values.values()])
            metrics = dict(zip(values, stacked.tolist(), strict=True))
            trainer.log_metrics(metrics, trainer.progress.batches_stepped - 1)

    def _values(self, trainer: Trainer, module: Module) -> dict[str, Tensor]:
        """Return what is to be logged, where it was computed."""
        norms = gradient_norms(module)
        if not norms:
            return {}
        found: dict[str, Any] = {}
        if self.log_optimizer_metrics:
            parameters = dict(module.named_parameters())
            owners = _owners(trainer)
            for name in norms:
                report = owners.get(id(parameters[name]))
                if report is not None:
                    found = report(parameters[name], name, found)
        together = norm_of_norms(list(norms.values()))
        own = {f"l2_norm/grad/{name}": norm for name, norm in norms.items()}
        values = {"l2_norm/grad/global": together, **own, **found}
        return {name: torch.as_tensor(value, dtype=torch.float32) for name, value in values.items()}


def _owners(trainer: Trainer) -> dict[int, Any]:
    """Return the method that reports on each parameter, by the parameter's id."""
    found = {}
    for optimizer in trainer.optimizers:
        report = getattr(optimizer, "report_per_parameter_metrics", None)
        if callable(report):
            for group in optimizer.param_groups:
                found.update({id(parameter): report for parameter in group["params"]})
    return found
