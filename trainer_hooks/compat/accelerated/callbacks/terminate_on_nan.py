"""TerminateOnNaNCallback: end a run in order when a loss is NaN or infinite."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainer_hooks.callbacks.guarding.nan_guard import NaNGuard
from trainer_hooks.callbacks.guarding.nan_options import found_by_any

if TYPE_CHECKING:
    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["TerminateOnNaNCallback"]

_LOSS = "validation loss"


class TerminateOnNaNCallback(NaNGuard):
    """End a run in order when a loss is NaN or infinite, in training or in a validation.

    The losses are looked at where they are: a GPU is waited for every `log_every_n_steps` steps, at
    the end of an epoch's batches and of a validation, so the run ends that much later. The end
    hooks fire, and nothing is raised from `fit`; `trainer.stop_reason` and the log say why. Of a
    validation step of the module's own the loss is what it returns, alone or under `"loss"`; what
    it only logs is not seen.

    It is `NaNGuard("stop", check="loss")` that looks at validations too.

    State: as `NaNGuard`: what was found, and answers that are still to be read.

    Example::

        from trainer_hooks.compat.accelerated.callbacks import TerminateOnNaNCallback

        trainer = Trainer(max_epochs=2, callbacks=[TerminateOnNaNCallback()])
        trainer.fit(module, train_loader, val_loader)
    """

    def __init__(self) -> None:
        super().__init__("stop", check="loss")
        self._evaluated_is_broken: Tensor | None = None

    @property
    def state_key(self) -> str:
        """The class."""
        return type(self).__qualname__

    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Forget an earlier fit, unless this one resumes it."""
        super().on_fit_start(trainer, module)
        if trainer.ckpt_path is None:
            self.events.clear()

    def on_validation_start(self, trainer: Trainer, module: Module) -> None:
        """Know of nothing yet."""
        self._evaluated_is_broken = None

    def on_validation_after_loss(self, trainer: Trainer, module: Module, loss: Tensor) -> None:
        """Note whether the loss of the default step is whole, where it is."""
        self._note(loss)

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        module: Module,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Note whether the loss that the step returned is whole, where it is."""
        self._note(outputs.get("loss") if isinstance(outputs, dict) else outputs)

    def on_validation_end(self, trainer: Trainer, module: Module) -> None:
        """Look, unless this is the sanity check."""
        is_broken, self._evaluated_is_broken = self._evaluated_is_broken, None
        if trainer.sanity_checking:
            return
        found = [_LOSS] if is_broken is not None and bool(is_broken) else []
        if found_by_any(trainer, found, (_LOSS,)):
            self.end_run(trainer, [_LOSS])

    def _note(self, loss: Any) -> None:
        if isinstance(loss, Tensor) and loss.numel() == 1:
            is_broken = torch.isfinite(loss.detach()).logical_not().reshape(())
            before = self._evaluated_is_broken
            self._evaluated_is_broken = is_broken if before is None else is_broken | before
