"""NaNMonitor: raise as soon as the loss is NaN."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.watching.due import is_logged
from trainer_hooks.errors import UsageError
from trainer_hooks.hooks import Band

if TYPE_CHECKING:
    from torch import Tensor

    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["NaNMonitor"]


class NaNMonitor(Callback):
    """Raise as soon as the loss is NaN.

    An infinite loss is let pass. On the CPU the loss is looked at before its backward, so that no
    step is made with it. On another device that would make the host wait at each batch: there it is
    noted on the device and looked at each `log_every_n_steps` steps and at the end of an epoch's
    batches.

    `NaNGuard` looks at gradients and weights too, and can skip such steps or go back to good
    weights; `TerminateOnNaNCallback` ends the run in order.

    State: whether a loss was NaN that was not looked at yet.

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
        """Return what is not looked at yet."""
        return {"is_nan": None if self._is_nan is None else self._is_nan.clone()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Look at it later."""
        self._is_nan = state_dict["is_nan"]

    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Know of nothing when a new training begins."""
        if trainer.progress.is_fresh:
            self._is_nan = None

    def on_before_backward(self, trainer: Trainer, module: Module, loss: Tensor) -> None:
        """Look at the loss, or note where it is whether it is NaN."""
        is_nan = loss.detach().isnan()
        before = self._is_nan
        self._is_nan = is_nan if before is None else is_nan | before.to(is_nan.device)
        if loss.device.type == "cpu":
            self._look(trainer)

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Look, if values are copied from the device now anyway."""
        if self._is_nan is not None and is_logged(trainer):
            self._look(trainer)

    def on_train_batches_end(self, trainer: Trainer, module: Module) -> None:
        """Look, before the epoch is validated."""
        if self._is_nan is not None:
            self._look(trainer)

    def _look(self, trainer: Trainer) -> None:
        """Ask whether a loss was NaN.

        Raises:
            UsageError: one was.
        """
        is_nan, self._is_nan = self._is_nan, None
        if is_nan is not None and bool(is_nan):
            raise UsageError(
                f"the train loss is NaN at step {trainer.global_step} (epoch "
                f"{trainer.current_epoch}), seen by NaNMonitor: it must be a number. Lower the "
                "learning rate, or find the origin with Trainer(detect_anomaly=True)."
            )
