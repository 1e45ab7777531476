"""Adapters: other frameworks' callbacks in a Trainer, and our callbacks in theirs.

A Trainer takes callbacks of other frameworks as they are. Their adapters are entry points of the
group `trainer_hooks.adapters`; an adapter of your own derives from `HostedCallback`. The functions
`to_...` export our callbacks, and `plugins_for` those of installed packages
(`trainer_hooks.adapters.export`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks._lazy import loader_of

if TYPE_CHECKING:
    from trainer_hooks.adapters.callback_adapter import HostedCallback, keep_opaque
    from trainer_hooks.adapters.export.accelerated import to_accelerated
    from trainer_hooks.adapters.export.composer import to_composer
    from trainer_hooks.adapters.export.ignite import to_ignite
    from trainer_hooks.adapters.export.lightning import lightning_factory, to_lightning
    from trainer_hooks.adapters.export.plugins import plugins_for
    from trainer_hooks.adapters.export.transformers import to_transformers

__all__ = [
    "HostedCallback",
    "keep_opaque",
    "lightning_factory",
    "plugins_for",
    "to_accelerated",
    "to_composer",
    "to_ignite",
    "to_lightning",
    "to_transformers",
]

if not TYPE_CHECKING:  # so that a name that is not there is an error to type checkers
    __getattr__ = loader_of(
        __name__,
        {
            "HostedCallback keep_opaque": "callback_adapter",
            "lightning_factory to_lightning": "export.lightning",
            "plugins_for": "export.plugins",
            "to_accelerated": "export.accelerated",
            "to_composer": "export.composer",
            "to_ignite": "export.ignite",
            "to_transformers": "export.transformers",
        },
    )
