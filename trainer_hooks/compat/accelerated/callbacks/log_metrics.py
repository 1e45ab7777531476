"""LogMetricsCallback: what newer releases of pytorch-accelerated call `PrintMetricsCallback`."""

from __future__ import annotations

from trainer_hooks.callbacks import PrintMetricsCallback

__all__ = ["LogMetricsCallback"]

LogMetricsCallback = PrintMetricsCallback
