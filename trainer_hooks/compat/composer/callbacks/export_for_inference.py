"""ExportForInferenceCallback: export the module, in Composer's Trainer the ComposerModel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks import callbacks
from trainer_hooks.compat.composer.core.built_in import ComposerBuiltIn, composer_model
from trainer_hooks.compat.composer.modules import package_getattr

if TYPE_CHECKING:
    from torch import nn

    from trainer_hooks.module.module import Module

__all__ = ["ExportForInferenceCallback"]

__getattr__ = package_getattr(__name__)


class ExportForInferenceCallback(  # type: ignore[misc] # run_event differs
    callbacks.ExportForInferenceCallback, ComposerBuiltIn
):
    """Export the ComposerModel, or another Trainer's module, when fit is over.

    Arguments, formats and errors are those of `trainer_hooks.callbacks.ExportForInferenceCallback`.
    """

    guest_class = callbacks.ExportForInferenceCallback

    def _exported(self, module: Module) -> nn.Module:
        """Return the ComposerModel, as Composer exports that."""
        model: nn.Module = composer_model(module)
        return model
