"""ActivationMonitor with Composer's names, statistics and destinations."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from trainer_hooks import callbacks
from trainer_hooks.callbacks.monitor_base import activation_statistics
from trainer_hooks.clock.schedules import DueCondition
from trainer_hooks.compat.composer.core.built_in import (
    ComposerBuiltIn,
    composer_logger,
    composer_model,
)
from trainer_hooks.compat.composer.loggers import WandBLogger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module

__all__ = ["ActivationMonitor"]


class ActivationMonitor(callbacks.ActivationMonitor, ComposerBuiltIn):  # type: ignore[misc]
    """`trainer_hooks.callbacks.ActivationMonitor`, with Composer's names, statistics, destinations.

    The names of layers are those of the ComposerModel, which is measured, too. An output that is a
    tensor has a value for each sample: `..._output.0`, `..._output.1`. In Composer's Trainer the
    values go to the `WandBLogger`s if `only_log_wandb` is set and there are any, and otherwise to
    every destination.
    """

    # a search by name, as for a command line, finds the class of trainer_hooks
    guest_class: ClassVar[type[Any]] = callbacks.ActivationMonitor

    def on_before_train_batch(self, trainer: Trainer, module: Module) -> None:
        """Register forward hooks on the model and its layers if the interval is due."""
        model = composer_model(module)
        super().on_before_train_batch(trainer, model)
        if self._handles:
            self._handles.append(model.register_forward_hook(partial(self._measure, "")))

    def on_before_backward(self, trainer: Trainer, module: Module, loss: Tensor) -> None:
        """Remove the hooks; in Composer's Trainer log, before the batch is counted."""
        super().on_before_backward(trainer, module, loss)
        if composer_logger(trainer) is not None:
            self._log_values(trainer, trainer.progress.batches_stepped)

    def _is_due(self, trainer: Trainer) -> bool:
        # asked in any case, since it keeps the counts of the question
        is_due = super()._is_due(trainer)
        decides_itself = isinstance(self.interval, DueCondition) or callable(self.interval)
        return is_due or (trainer.progress.batches_stepped == 0 and not decides_itself)

    def _loggers(self, trainer: Trainer) -> list[Any]:
        logger = composer_logger(trainer)
        if logger is None:
            return super()._loggers(trainer)
        trackers = [
            destination
            for destination in logger.destinations
            if isinstance(destination, WandBLogger)
        ]
        return trackers if self.only_log_wandb and trackers else [logger]

    def _measure(self, name: str, _: nn.Module, inputs: Any, outputs: Any) -> None:
        for side, values in (("input", inputs), ("output", outputs)):
            # a tensor is taken apart along its first dimension, as Composer does
            for index, value in enumerate(values if values is not None else ()):
                for path, tensor in _float_tensors(name, value):
                    key = f"{path}_{side}.{index}"
                    for statistic, number in _statistics(tensor.detach()).items():
                        self._values[f"activations/{statistic}/{key}"] = number


def _float_tensors(name: str, value: Any) -> Iterator[tuple[str, Tensor]]:
    """Iterate over the tensors of floats in nested sequences, each with the name of its place."""
    if isinstance(value, list | tuple):
        for index, part in enumerate(value):
            yield from _float_tensors(f"{name}_{index}", part)
    elif isinstance(value, Tensor) and value.is_floating_point() and value.ndim and value.numel():
        yield name, value


def _statistics(tensor: Tensor) -> dict[str, Tensor]:
    """Compute Composer's statistics: of the last dimension, averaged over the others."""
    dtype = torch.promote_types(tensor.dtype, torch.float32)
    norms = torch.linalg.vector_norm(tensor, dim=-1, dtype=dtype)
    return {**activation_statistics(tensor), "l2_norm": norms.mean()}
