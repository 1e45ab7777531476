"""The place of `ThresholdStopper` in Composer: `composer.callbacks.threshold_stopper`."""

from __future__ import annotations

from trainer_hooks.compat.composer.callbacks.early_stopper import ThresholdStopper

__all__ = ["ThresholdStopper"]
