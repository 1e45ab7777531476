"""Adapters: other frameworks' callbacks in a Trainer, and our callbacks in theirs.

A Trainer takes callbacks of other frameworks as they are. Their adapters are entry points of the
group `trainer_hooks.adapters`; an adapter of your own derives from `HostedCallback`. The functions
`to_...` export our callbacks, and `plugins_for` those of installed packages
(`trainer_hooks.adapters.export`).
"""

from __future__ import annotations

from trainer_hooks._lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
