"""The package's one logger; the application decides where it goes."""

from __future__ import annotations

import logging

__all__ = ["log"]

log = logging.getLogger("trainer_hooks")
