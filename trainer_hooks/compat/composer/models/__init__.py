"""Models for Composer's trainer."""

from __future__ import annotations

from trainer_hooks.compat.composer.models.base import ComposerClassifier, ComposerModel
from trainer_hooks.compat.composer.modules import package_getattr

__all__ = ["ComposerClassifier", "ComposerModel"]

__getattr__ = package_getattr(__name__)
