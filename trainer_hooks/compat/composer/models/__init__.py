"""Models for Composer's trainer."""

from __future__ import annotations

from trainer_hooks.compat.composer._names import names
from trainer_hooks.compat.composer.models.base import ComposerModel
from trainer_hooks.compat.composer.models.classifier import ComposerClassifier

__all__ = ["ComposerClassifier", "ComposerModel"]

__getattr__ = names(
    __name__,
    {},
    (
        "HuggingFaceModel",
        "Initializer",
        "write_huggingface_pretrained_from_composer_checkpoint",
    ),
)
