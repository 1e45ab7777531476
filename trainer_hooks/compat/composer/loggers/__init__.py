"""Composer's logger destinations; each is loaded when it is first used."""

from __future__ import annotations

from trainer_hooks.compat.composer.modules import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
