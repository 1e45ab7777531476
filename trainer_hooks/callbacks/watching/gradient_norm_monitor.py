"""GradientNormMonitor: log how large the gradients are."""

from __future__ import annotations

import math
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.monitoring import check_choice, check_number
from trainer_hooks.callbacks.watching.due import will_be_logged
from trainer_hooks.callbacks.watching.norms import norm_of, norm_of_norms
from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor
    from torch.optim import Optimizer

    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["GradientNormMonitor"]

_WHERE = "GradientNormMonitor"
_LAYERS = (False, True, "parameter", "module")
_MOMENTS = ("before", "after", "both")


class GradientNormMonitor(Callback):
    """Log the norm of the gradients, of all together and of each layer, before or after clipping.

    A norm is computed only for the steps whose metrics the loggers are given (`log_every_n_steps`),
    where it was made, and is copied from the device together with those. It is that of the
    gradients of a whole window, unscaled. It is in `trainer.callback_metrics` too.

    The names are Lightning's: `grad_2.0_norm_total`, and of one layer `grad_2.0_norm/layer.weight`.
    After clipping they are `clipped_grad_2.0_norm_total` and so on. Where the module has several
    optimizers, the totals end in `/optimizer_0`, `/optimizer_1`. A parameter without a gradient is
    left out.

    With manual optimization the module clips by itself before it steps, so what is measured is what
    the optimizer steps with, whatever `clipping` is; it has the names of before.

    Args:
        norm_type: the order of the norm: a number above zero, or infinity for the largest entry.
        per_layer: whether each layer is logged: `"parameter"` (or True) for each weight and bias,
            `"module"` for all parameters of a layer together, False for the total alone.
        clipping: when to measure: `"before"` clipping, `"after"` it, or `"both"`.
        names: patterns such as `"encoder.*"`: the layers to log, by the names of their parameters;
            all unless given. The total is of all of them in any case.

    Raises:
        OptionError: an argument is outside its rule.

    State: none.

    Example::

        monitor = GradientNormMonitor(per_layer="module", clipping="both")
        trainer = Trainer(
            max_epochs=2, gradient_clip_val=0.5, log_every_n_steps=1, callbacks=[monitor]
        )
        trainer.fit(module, train_loader, val_loader)
        print(trainer.callback_metrics["grad_2.0_norm_total"])
    """

    def __init__(
        self,
        norm_type: float = 2.0,
        per_layer: bool | str = False,
        clipping: str = "before",
        names: str | Sequence[str] | None = None,
    ) -> None:
        if norm_type != math.inf and not check_number("norm_type", norm_type, _WHERE) > 0:
            raise OptionError(
                f"norm_type {norm_type!r} of {_WHERE}: it must be above zero. Pass 2.0, or "
                "float('inf') for the largest entry."
            )
        self.norm_type = float(norm_type)
        self.per_layer: bool | str = check_choice("per_layer", per_layer, _WHERE, _LAYERS)
        self.clipping: str = check_choice("clipping", clipping, _WHERE, _MOMENTS)
        self.names = _check_names(names)

    @property
    def state_key(self) -> str:
        """The class with what it measures, so that one does not replace another."""
        return self._generate_state_key(
            norm_type=self.norm_type,
            per_layer=self.per_layer,
            clipping=self.clipping,
            names=self.names,
        )

    def on_before_optimizer_step(
        self, trainer: Trainer, module: Module, optimizer: Optimizer
    ) -> None:
        """Measure what is not clipped yet."""
        is_wanted = self.clipping != "after" or not module.automatic_optimization
        if is_wanted and will_be_logged(trainer):
            self._measure(trainer, module, optimizer, "grad")

    def on_after_train_batch(self, trainer: Trainer, module: Module) -> None:
        """Measure what is clipped."""
        if self.clipping != "before" and will_be_logged(trainer):
            for optimizer in trainer.optimizers:
                self._measure(trainer, module, optimizer, "clipped_grad")

    def _measure(self, trainer: Trainer, module: Module, optimizer: Optimizer, prefix: str) -> None:
        """Log the norms of one optimizer's gradients, without waiting for the device."""
        mine = {id(p) for group in optimizer.param_groups for p in group["params"]}
        norms = {
            name: norm_of(parameter.grad, self.norm_type)
            for name, parameter in module.named_parameters()
            if parameter.grad is not None and id(parameter) in mine
        }
        if not norms:
            return
        prefix = f"{prefix}_{self.norm_type}_norm"
        several = trainer.optimizers
        number = next((i for i, item in enumerate(several) if item is optimizer), 0)
        suffix = f"/optimizer_{number}" if len(several) > 1 else ""
        values = {f"{prefix}_total{suffix}": norm_of_norms(list(norms.values()), self.norm_type)}
        for layer, parts in self._layers(norms).items():
            values[f"{prefix}/{layer}"] = norm_of_norms(parts, self.norm_type)
        for name, value in values.items():
            module.log(name, value, on_step=True, on_epoch=False)

    def _layers(self, norms: dict[str, Tensor]) -> dict[str, list[Tensor]]:
        """Return the norms that each layer consists of, by its name."""
        layers: dict[str, list[Tensor]] = {}
        if self.per_layer is False:
            return layers
        for name, norm in norms.items():
            if self.names is None or any(fnmatchcase(name, pattern) for pattern in self.names):
                # a parameter of the module itself is a layer of its own
                owner = name.rpartition(".")[0] or name
                layers.setdefault(owner if self.per_layer == "module" else name, []).append(norm)
        return layers


def _check_names(names: object) -> tuple[str, ...] | None:
    """Return the patterns of `names`; one may stand alone.

    Raises:
        OptionError: one is no text, or empty.
    """
    if names is None:
        return None
    several = (names,) if isinstance(names, str) else names
    if (
        isinstance(several, list | tuple)
        and several
        and all(isinstance(item, str) and item for item in several)
    ):
        return tuple(several)
    raise OptionError(
        f"names {names!r} of {_WHERE}: they must be patterns of parameters' names. Pass one "
        "such as 'encoder.*', or a list of them."
    )
