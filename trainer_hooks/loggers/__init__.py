"""Loggers: where the metrics of a run are written."""

from __future__ import annotations

from trainer_hooks.loggers.base import Logger
from trainer_hooks.loggers.csv import CSVLogger

__all__ = ["CSVLogger", "Logger"]
