"""The place of `Serializable` in Composer: `composer.core.serializable`."""

from __future__ import annotations

from trainer_hooks.compat.composer.core.types import Serializable

__all__ = ["Serializable"]
