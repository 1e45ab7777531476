"""ActivationMonitor: log statistics of each layer's inputs and outputs, under Composer's names."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks._options import FLAG, Rule, is_text, option_rules
from trainer_hooks.callbacks.base import ScheduledCallback
from trainer_hooks.clock.schedules import parse_when
from trainer_hooks.clock.timing import TimeUnit
from trainer_hooks.metrics.scalars import floats

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn
    from torch.utils.hooks import RemovableHandle

    from trainer_hooks.clock.schedules import When
    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module

_WHERE = "ActivationMonitor"


class ActivationMonitor(ScheduledCallback):
    """Log statistics of each layer's inputs and outputs, under Composer's names.

    At each `interval`, it measures the first forward of the next batch. For each input and output
    of a layer that is a tensor of floating point numbers it logs the norm,
    `activations/l2_norm/layer_output.0`, the mean, `activations/average/...`, and the kurtosis and
    the maximum of the last dimension, each averaged over the others, `activations/kurtosis/...` and
    `activations/max/...`. Inputs are named `layer_input.0` and so on. The values are computed on
    the tensors' device and copied together after the batch. Between the intervals the module has
    no forward hooks.

    Args:
        interval: how often: a number of batches, a time such as `"25ba"`, a filter, or a function
            of the clock.
        ignore_module_types: names of classes, or parts of such names, whose layers are left out.
        only_log_wandb: whether only a `WandbLogger` gets the values, as there are many. Without
            such a logger nothing is measured then.

    State: the counters at the last check of the interval.

    Raises:
        OptionError: an argument is outside its rule.

    Example::

        monitor = ActivationMonitor("5ba", ignore_module_types=["ReLU"], only_log_wandb=False)
        trainer = Trainer(max_epochs=2, logger=CSVLogger("logs"), callbacks=[monitor])
        trainer.fit(module, train_loader)
    """

    @option_rules(
        ignore_module_types=Rule(
            "a list of names of classes",
            lambda names: isinstance(names, list | tuple) and all(map(is_text, names)),
            "Pass one such as ['ReLU'].",
        ).unless(None),
        only_log_wandb=FLAG,
    )
    def __init__(
        self,
        interval: int | When = "25ba",
        ignore_module_types: Sequence[str] | None = None,
        only_log_wandb: bool = True,
    ) -> None:
        self.interval = interval
        super().__init__(parse_when(interval, "interval", _WHERE, bare=TimeUnit.BATCH))
        self.ignore_module_types = tuple(ignore_module_types or ())
        self.only_log_wandb = only_log_wandb
        self._handles: list[RemovableHandle] = []
        self._values: dict[str, Tensor] = {}

    @property
    def state_key(self) -> str:
        """`ActivationMonitor{...}` with its interval and the ignored types."""
        return self._generate_state_key(
            when=str(self._schedule.when), ignore_module_types=self.ignore_module_types
        )

    def on_before_train_batch(self, trainer: Trainer, module: Module) -> None:
        """Register forward hooks on the layers if the interval is due."""
        if not self._loggers(trainer) or not self._is_due(trainer):
            return
        for name, layer in module.named_modules():
            class_name = type(layer).__name__
            if name and not any(ignored in class_name for ignored in self.ignore_module_types):
                self._handles.append(layer.register_forward_hook(partial(self._measure, name)))

    def on_before_backward(self, trainer: Trainer, module: Module, loss: Tensor) -> None:
        """Remove the hooks, so that no other forward of the batch is measured."""
        self._remove_hooks()

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Log the values of the batch."""
        self._remove_hooks()
        self._log_values(trainer, max(0, trainer.progress.batches_stepped - 1))

    def _log_values(self, trainer: Trainer, step: int) -> None:
        if not self._values:
            return
        values, self._values = self._values, {}
        metrics = floats(values)
        for logger in self._loggers(trainer):
            logger.log_metrics(metrics, step)

    def teardown(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Remove the hooks and the values, also after an error."""
        self._remove_hooks()
        self._values = {}

    def _loggers(self, trainer: Trainer) -> list[Any]:
        """Return the loggers that get the values."""
        if not self.only_log_wandb:
            return list(trainer.loggers)
        from trainer_hooks.loggers import WandbLogger

        return [logger for logger in trainer.loggers if isinstance(logger, WandbLogger)]

    def _measure(self, name: str, _: nn.Module, inputs: Any, outputs: Any) -> None:
        """Keep the statistics of a layer's tensors of floats, on their device."""
        for side, tensors in (("input", inputs), ("output", outputs)):
            several = tensors if isinstance(tensors, tuple | list) else (tensors,)
            for index, tensor in enumerate(several):
                is_fit = isinstance(tensor, torch.Tensor) and tensor.is_floating_point()
                if is_fit and tensor.ndim and tensor.numel():
                    for statistic, value in activation_statistics(tensor.detach()).items():
                        self._values[f"activations/{statistic}/{name}_{side}.{index}"] = value

    def _remove_hooks(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []


def activation_statistics(tensor: Tensor) -> dict[str, Tensor]:
    """Compute the logged statistics of a tensor as tensors.

    Kurtosis and maximum are of the last dimension, averaged over the others. The kurtosis is
    Pearson's, 3 for a normal distribution; it is NaN where all values are equal.
    """
    # the fourth power of a float16 overflows from 16 on
    wide = tensor.to(torch.promote_types(tensor.dtype, torch.float32))
    centred = wide - wide.mean(dim=-1, keepdim=True)
    kurtosis = centred.pow(4).mean(dim=-1) / centred.square().mean(dim=-1).square()
    return {
        "l2_norm": torch.linalg.vector_norm(wide),
        "average": wide.mean(),
        "kurtosis": kurtosis.mean(),
        "max": wide.amax(dim=-1).mean(),
    }
