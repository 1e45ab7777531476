"""Loggers: write the metrics of a run to files or services; each is loaded on first use."""

from __future__ import annotations

from trainer_hooks._lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
