"""The place of `LRMonitor` in Composer: `composer.callbacks.lr_monitor`."""

from __future__ import annotations

from trainer_hooks.compat.composer.callbacks.optimizer_monitor import LRMonitor

__all__ = ["LRMonitor"]
