"""Lightning's ways to save, which are paths and options of the savers here."""

from __future__ import annotations

from trainer_hooks.compat.lightning import plugins

__all__: list[str] = []

__getattr__ = plugins.__getattr__
