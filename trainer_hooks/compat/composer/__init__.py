"""Composer's names over trainer_hooks; each is loaded when it is first used."""

from __future__ import annotations

from trainer_hooks.compat.composer.modules import MODULES, attach_stub

MODULES.register()

__getattr__, __dir__, __all__ = attach_stub(__name__)
