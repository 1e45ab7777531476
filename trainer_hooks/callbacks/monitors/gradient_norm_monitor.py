"""GradientNormMonitor: log the norms of the gradients."""

from __future__ import annotations

import math
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import torch

from trainer_hooks._options import Combination, Rule, finite_number, is_text, one_of, option_rules
from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.base import will_be_logged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn
    from torch.optim import Optimizer

    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module


def norm_of(gradient: Tensor, order: float = 2.0) -> Tensor:
    """Return the norm of a gradient in float32 or wider, as a tensor on its device."""
    entries = gradient.coalesce().values() if gradient.is_sparse else gradient
    # squares of float16 values overflow from 256 on
    wide = torch.promote_types(entries.dtype, torch.float32)
    norm: Tensor = torch.linalg.vector_norm(entries.detach(), order, dtype=wide)
    return norm


def norm_of_norms(norms: Sequence[Tensor], order: float = 2.0) -> Tensor:
    """Return the norm of several tensors together from their norms, on the first one's device."""
    if len(norms) == 1:
        return norms[0]
    # a module may be spread over several devices
    device = norms[0].device
    total: Tensor = torch.linalg.vector_norm(
        torch.stack([norm.to(device) for norm in norms]), order
    )
    return total


def gradient_norms(module: nn.Module) -> dict[str, Tensor]:
    """Return the norm of each parameter's gradient, by the parameter's name."""
    return {
        name: norm_of(parameter.grad)
        for name, parameter in module.named_parameters()
        if parameter.grad is not None
    }


class GradientNormMonitor(Callback):
    """Log the norm of all gradients, and of each layer's, before or after clipping.

    A norm is computed only for the steps whose metrics are logged (`log_every_n_steps`), on the
    gradients' device, and is copied to the host together with those metrics. It is the norm of the
    unscaled gradients of a whole accumulation window. It is in `trainer.callback_metrics` too.

    The names are Lightning's: `grad_2.0_norm_total`, and of one layer `grad_2.0_norm/layer.weight`.
    The names after clipping are `clipped_grad_2.0_norm_total` and so on. Where the module has
    several optimizers, the totals end in `/optimizer_0`, `/optimizer_1`. A parameter without a
    gradient is left out.

    With manual optimization the module clips by itself before it steps. So the gradients that the
    optimizer steps with are measured, whatever `clipping` is, under the names of before.

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

    @option_rules(
        Combination(
            ("names",),
            lambda names: (
                names is None
                or is_text(names)
                or (isinstance(names, list | tuple) and bool(names) and all(map(is_text, names)))
            ),
            "they must be patterns of parameters' names. Pass one such as 'encoder.*', or a list "
            "of them.",
            "names {names!r} of {owner}",
        ),
        norm_type=(
            finite_number().unless(math.inf),
            Rule(
                "above zero",
                lambda order: order > 0,
                "Pass 2.0, or float('inf') for the largest entry.",
            ),
        ),
        per_layer=one_of(False, True, "parameter", "module"),
        clipping=one_of("before", "after", "both"),
    )
    def __init__(
        self,
        norm_type: float = 2.0,
        per_layer: bool | str = False,
        clipping: str = "before",
        names: str | Sequence[str] | None = None,
    ) -> None:
        self.norm_type = float(norm_type)
        self.per_layer = per_layer
        self.clipping = clipping
        self.names = (names,) if isinstance(names, str) else names and tuple(names)

    @property
    def state_key(self) -> str:
        """`GradientNormMonitor{...}` with all options, so that several keep their own states."""
        return self._generate_state_key(
            norm_type=self.norm_type,
            per_layer=self.per_layer,
            clipping=self.clipping,
            names=self.names,
        )

    def on_before_optimizer_step(
        self, trainer: Trainer, module: Module, optimizer: Optimizer
    ) -> None:
        """Log the norms before clipping."""
        # in manual optimization the module has clipped by itself when this hook comes
        is_measured = self.clipping != "after" or not module.automatic_optimization
        if is_measured and will_be_logged(trainer):
            self._measure(trainer, module, optimizer, "grad")

    def on_after_train_batch(self, trainer: Trainer, module: Module) -> None:
        """Log the norms after clipping."""
        # in manual optimization they are logged already, and of the optimizer that steps alone
        is_measured = self.clipping != "before" and module.automatic_optimization
        if is_measured and will_be_logged(trainer):
            for optimizer in trainer.optimizers:
                self._measure(trainer, module, optimizer, "clipped_grad")

    def _measure(self, trainer: Trainer, module: Module, optimizer: Optimizer, prefix: str) -> None:
        """Log the norms of one optimizer's gradients, without waiting for the device."""
        parameter_ids = {id(p) for group in optimizer.param_groups for p in group["params"]}
        norms = {
            name: norm_of(parameter.grad, self.norm_type)
            for name, parameter in module.named_parameters()
            if parameter.grad is not None and id(parameter) in parameter_ids
        }
        if not norms:
            return
        prefix = f"{prefix}_{self.norm_type}_norm"
        optimizers = trainer.optimizers
        index = next((i for i, item in enumerate(optimizers) if item is optimizer), 0)
        suffix = f"/optimizer_{index}" if len(optimizers) > 1 else ""
        values = {f"{prefix}_total{suffix}": norm_of_norms(list(norms.values()), self.norm_type)}
        for layer, parts in self._layers(norms).items():
            values[f"{prefix}/{layer}"] = norm_of_norms(parts, self.norm_type)
        for name, value in values.items():
            module.log(name, value, on_step=True, on_epoch=False)

    def _layers(self, norms: dict[str, Tensor]) -> dict[str, list[Tensor]]:
        """Return the norms of the parameters of each logged layer, by the layer's name."""
        layers: dict[str, list[Tensor]] = {}
        if self.per_layer is False:
            return layers
        for name, norm in norms.items():
            if self.names is None or any(fnmatchcase(name, pattern) for pattern in self.names):
                # a parameter of the module itself is a layer of its own
                owner = name.rpartition(".")[0] or name
                layers.setdefault(owner if self.per_layer == "module" else name, []).append(norm)
        return layers
