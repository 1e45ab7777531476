"""NaNMonitor: raise as soon as the loss is NaN."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor

from trainer_hooks.callbacks.monitor_base import is_logged
from trainer_hooks.compat.composer.core.built_in import ComposerBuiltIn
from trainer_hooks.connector.state_types import checks_state
from trainer_hooks.errors import UsageError
from trainer_hooks.hooks.band import Band
from trainer_hooks.hooks.spec import keeps_optimizers

if TYPE_CHECKING:
    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module

__all__ = ["NaNMonitor"]


class NaNMonitor(ComposerBuiltIn):
    """Raise as soon as the loss is NaN.

    An infinite loss is ignored. On the CPU the loss is checked before its backward, so that no step
    is made with it. On another device that would make the host wait at each batch: there a flag is
    kept on the device, and checked each `log_every_n_steps` steps and at the end of an epoch's
    batches.

    `NaNGuard` also checks gradients and weights, and can skip such steps or restore good weights;
    `TerminateOnNaNCallback` stops the run in order.

    State: the flag whether a loss since the last check was NaN.

    Raises:
        UsageError: in a fit, a RuntimeError: a loss is NaN.

    Example::

        from trainer_hooks.compat.composer.callbacks import NaNMonitor

        trainer = Trainer(max_epochs=2, callbacks=[NaNMonitor()])
        trainer.fit(module, train_loader)
    """

    band: ClassVar[Band] = Band.CONTROL

    def __init__(self) -> None:
        self._is_nan: Tensor | None = None

    def state_dict(self) -> dict[str, Any]:
        """Return the flag of the losses since the last check."""
        return {"is_nan": None if self._is_nan is None else self._is_nan.clone()}

    @checks_state({"is_nan": Tensor | None})
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the flag, which the next check reads."""
        self._is_nan = state_dict["is_nan"]

    @keeps_optimizers
    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Reset the flag when a new training begins."""
        if trainer.progress.is_new_training:
            self._is_nan = None

    def on_before_backward(self, trainer: Trainer, module: Module, loss: Tensor) -> None:
        """Add the loss to the flag, and check it if it is on the CPU."""
        # stays on the device: bool() here would wait for it in every batch
        is_nan = loss.detach().isnan()
        earlier = self._is_nan
        # a flag from a checkpoint may be on another device
        self._is_nan = is_nan if earlier is None else is_nan | earlier.to(is_nan.device)
        if loss.device.type == "cpu":
            self._check(trainer)

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Check the flag if values are copied from the device now anyway."""
        if self._is_nan is not None and is_logged(trainer):
            self._check(trainer)

    def on_train_batches_end(self, trainer: Trainer, module: Module) -> None:
        """Check the flag before the epoch is validated."""
        if self._is_nan is not None:
            self._check(trainer)

    def _check(self, trainer: Trainer) -> None:
        """Raise an error if the flag says that a loss was NaN, and reset the flag.

        Raises:
            UsageError: a loss was NaN.
        """
        is_nan, self._is_nan = self._is_nan, None
        if is_nan is not None and bool(is_nan):
            raise UsageError(
                f"the train loss is NaN at step {trainer.global_step} (epoch "
                f"{trainer.current_epoch}), seen by NaNMonitor: it must be a number. Lower the "
                "learning rate, or find the origin with Trainer(detect_anomaly=True)."
            )
