"""GradMonitor: log the norm of the gradients under Composer's older names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.monitoring import check_choice
from trainer_hooks.callbacks.watching.due import is_logged
from trainer_hooks.callbacks.watching.norms import gradient_norms, norm_of_norms

if TYPE_CHECKING:
    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["GradMonitor"]


class GradMonitor(Callback):
    """Log the norm of the gradients under Composer's older names.

    It is the L2 norm of the gradients that the optimizer stepped with: of a whole window, unscaled
    and clipped. All together they are `grad_l2_norm/step`, and those of one parameter
    `layer_grad_l2_norm/layer.weight`. They are computed and copied only where they go to the
    loggers, each `log_every_n_steps` steps. A parameter without a gradient is left out, and a step
    whose module cleared the gradients by itself logs nothing.

    `OptimizerMonitor` has Composer's newer names, and what the optimizer says of itself;
    `GradientNormMonitor` can measure before clipping, and other norms.

    Args:
        log_layer_grad_norms: whether each parameter's norm is logged too.

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
        self.log_layer_grad_norms: bool = check_choice(
            "log_layer_grad_norms", log_layer_grad_norms, "GradMonitor", (False, True)
        )

    @property
    def state_key(self) -> str:
        """The class with what it logs."""
        return self._generate_state_key(log_layer_grad_norms=self.log_layer_grad_norms)

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Log the norms, if they are due."""
        norms = gradient_norms(module) if is_logged(trainer) else {}
        if not norms:
            return
        values = {"grad_l2_norm/step": norm_of_norms(list(norms.values()))}
        if self.log_layer_grad_norms:
            values.update({f"layer_grad_l2_norm/{name}": norm for name, norm in norms.items()})
        device = values["grad_l2_norm/step"].device
        numbers = torch.stack([value.to(device) for value in values.values()]).tolist()
        trainer.log_metrics(
            dict(zip(values, numbers, strict=True)), trainer.progress.batches_stepped - 1
        )
