"""ActivationMonitor: log what goes into each layer and comes out, under Composer's names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks.callbacks.monitoring import check_choice
from trainer_hooks.callbacks.on_cue import OnCue
from trainer_hooks.clock import TimeUnit, parse_when
from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import Tensor, nn
    from torch.utils.hooks import RemovableHandle

    from trainer_hooks.clock import When
    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["ActivationMonitor"]

_WHERE = "ActivationMonitor"


class ActivationMonitor(OnCue):
    """Log what goes into each layer and comes out, under Composer's names.

    At each `interval`, the first forward of the batch that follows is watched. Of each input and
    output of a layer that is a tensor of floating point numbers there are logged its norm,
    `activations/l2_norm/layer_output.0`, and of its last dimension the mean of all
    `activations/average/...`, of all `activations/kurtosis/...` and of all largest entries
    `activations/max/...`. Inputs are `layer_input.0` and so on. The values are computed where the
    tensors are and copied together, once the batch is done. Between the intervals the module has no
    forward hooks.

    Args:
        interval: how often: a number of batches, a time such as `"25ba"`, a filter, or a function
            of the clock.
        ignore_module_types: names of classes, or parts of such names, whose layers are left out.
        only_log_wandb: whether only a `WandbLogger` is given the values, as there are many. Without
            one nothing is watched then.

    State: the counts when it last looked.

    Raises:
        OptionError: an argument is outside its rule.

    Example::

        monitor = ActivationMonitor("5ba", ignore_module_types=["ReLU"], only_log_wandb=False)
        trainer = Trainer(max_epochs=2, logger=CSVLogger("logs"), callbacks=[monitor])
        trainer.fit(module, train_loader)
    """

    def __init__(
        self,
        interval: int | When = "25ba",
        ignore_module_types: Sequence[str] | None = None,
        only_log_wandb: bool = True,
    ) -> None:
        self.interval = interval
        super().__init__(parse_when(interval, "interval", _WHERE, bare=TimeUnit.BATCH))
        self.ignore_module_types = _check_types(ignore_module_types)
        self.only_log_wandb: bool = check_choice(
            "only_log_wandb", only_log_wandb, _WHERE, (True, False)
        )
        self._handles: list[RemovableHandle] = []
        self._values: dict[str, Tensor] = {}

    @property
    def state_key(self) -> str:
        """The class with when it watches what."""
        return self._generate_state_key(
            when=str(self._cue.when), ignore_module_types=self.ignore_module_types
        )

    def on_before_train_batch(self, trainer: Trainer, module: Module) -> None:
        """Watch the forward that follows, if it is due."""
        if not self._loggers(trainer) or not self._cue.is_due(trainer.clock):
            return
        for name, layer in module.named_modules():
            kind = type(layer).__name__
            if name and not any(ignored in kind for ignored in self.ignore_module_types):
                self._handles.append(layer.register_forward_hook(self._watcher(name)))

    def on_before_backward(self, trainer: Trainer, module: Module, loss: Tensor) -> None:
        """Stop watching: a window's other forwards are let pass."""
        self._let_go()

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Log what was seen."""
        self._let_go()
        if not self._values:
            return
        values, self._values = self._values, {}
        device = next(iter(values.values())).device
        numbers = torch.stack([value.to(device) for value in values.values()]).tolist()
        metrics = dict(zip(values, numbers, strict=True))
        for logger in self._loggers(trainer):
            logger.log_metrics(metrics, max(0, trainer.progress.batches_stepped - 1))

    def teardown(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Leave nothing on the module, also after an error."""
        self._let_go()
        self._values = {}

    def _loggers(self, trainer: Trainer) -> list[Any]:
        """Return those that are given the values."""
        if not self.only_log_wandb:
            return list(trainer.loggers)
        from trainer_hooks.loggers import WandbLogger

        return [logger for logger in trainer.loggers if isinstance(logger, WandbLogger)]

    def _watcher(self, name: str) -> Any:
        def watch(layer: nn.Module, given: Any, returned: Any) -> None:  # noqa: ARG001
            for side, tensors in (("input", given), ("output", returned)):
                several = tensors if isinstance(tensors, tuple | list) else (tensors,)
                self._measure(f"{name}_{side}", several)

        return watch

    def _measure(self, place: str, tensors: Iterable[Any]) -> None:
        for number, tensor in enumerate(tensors):
            is_fit = isinstance(tensor, torch.Tensor) and tensor.is_floating_point()
            if is_fit and tensor.ndim and tensor.numel():
                for kind, value in _statistics(tensor.detach()).items():
                    self._values[f"activations/{kind}/{place}.{number}"] = value

    def _let_go(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []


def _statistics(tensor: Tensor) -> dict[str, Tensor]:
    """Return what is logged of a tensor; statistics are of its last dimension, and then averaged.

    The kurtosis is that of Pearson, 3 for a normal distribution; it is NaN where all are equal.
    """
    wide = tensor.to(torch.promote_types(tensor.dtype, torch.float32))
    apart = wide - wide.mean(dim=-1, keepdim=True)
    kurtosis = apart.pow(4).mean(dim=-1) / apart.square().mean(dim=-1).square()
    return {
        "l2_norm": torch.linalg.vector_norm(wide),
        "average": wide.mean(),
        "kurtosis": kurtosis.mean(),
        "max": wide.amax(dim=-1).mean(),
    }


def _check_types(value: object) -> tuple[str, ...]:
    """Return the names of `ignore_module_types`.

    Raises:
        OptionError: it is no list of texts.
    """
    if value is None:
        return ()
    if isinstance(value, list | tuple) and all(isinstance(item, str) and item for item in value):
        return tuple(value)
    raise OptionError(
        f"ignore_module_types {value!r} of {_WHERE}: it must be a list of names of classes. Pass "
        "one such as ['ReLU']."
    )
