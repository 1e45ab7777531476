"""Lightning's precision plugins, which are options of the trainer here."""

from __future__ import annotations

from trainer_hooks.compat.lightning import plugins

__all__: list[str] = []

__getattr__ = plugins.__getattr__
