"""`trainer-hooks fit|validate|test|predict`: a run that a config or the command line describes."""

from __future__ import annotations

from trainer_hooks._lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
