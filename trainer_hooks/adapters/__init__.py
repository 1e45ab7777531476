"""Other frameworks' callbacks in a Trainer, and ours in theirs.

A Trainer takes callbacks of other frameworks as they are; what is here adapts them, and is found
in the entry-point group `trainer_hooks.adapters`. An adapter of your own derives from
`HostedCallback`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks._lazy import loader_of

if TYPE_CHECKING:
    from trainer_hooks.adapters.hosted import HostedCallback
    from trainer_hooks.adapters.out.accelerated import to_accelerated
    from trainer_hooks.adapters.out.composer import to_composer
    from trainer_hooks.adapters.out.lightning import lightning_factory, to_lightning
    from trainer_hooks.adapters.out.transformers import to_transformers

__all__ = [
    "HostedCallback",
    "lightning_factory",
    "to_accelerated",
    "to_composer",
    "to_lightning",
    "to_transformers",
]

if not TYPE_CHECKING:  # so that a name that is not there is an error to type checkers
    __getattr__ = loader_of(
        __name__,
        {
            "HostedCallback": "hosted",
            "lightning_factory": "out.lightning",
            "to_accelerated": "out.accelerated",
            "to_composer": "out.composer",
            "to_lightning": "out.lightning",
            "to_transformers": "out.transformers",
        },
    )
