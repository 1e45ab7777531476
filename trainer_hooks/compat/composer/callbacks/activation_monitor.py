"""ActivationMonitor under the names that a ComposerModel's layers have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from trainer_hooks import callbacks
from trainer_hooks.compat.composer.core.built_in import ComposerBuiltIn, composer_model

if TYPE_CHECKING:
    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module

__all__ = ["ActivationMonitor"]


class ActivationMonitor(callbacks.ActivationMonitor, ComposerBuiltIn):  # type: ignore[misc]
    """`trainer_hooks.callbacks.ActivationMonitor`, with the ComposerModel's names of its layers."""

    # a search by name, as for a command line, finds the class of trainer_hooks
    guest_class: ClassVar[type[Any]] = callbacks.ActivationMonitor

    def on_before_train_batch(self, trainer: Trainer, module: Module) -> None:
        """Register forward hooks on the model's layers if the interval is due."""
        super().on_before_train_batch(trainer, composer_model(module))
