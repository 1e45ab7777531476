"""The adapters of MosaicML Composer's callbacks, models and logger destinations."""

from __future__ import annotations

from trainer_hooks._lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
