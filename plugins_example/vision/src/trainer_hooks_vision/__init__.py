"""Callbacks that show what a vision model does, in pictures and numbers."""

from __future__ import annotations

from trainer_hooks_vision.confused_logits import ConfusedLogitCallback
from trainer_hooks_vision.image_logger import ImageLogger
from trainer_hooks_vision.latent_interpolator import LatentDimInterpolator
from trainer_hooks_vision.online_evaluator import SSLOnlineEvaluator

__all__ = ["ConfusedLogitCallback", "ImageLogger", "LatentDimInterpolator", "SSLOnlineEvaluator"]
