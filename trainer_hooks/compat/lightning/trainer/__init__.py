"""The Trainer, at Lightning's path."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks.compat.lightning.modules import lightning_getattr

if TYPE_CHECKING:
    from trainer_hooks import (
        seed_everything,
    )
    from trainer_hooks.compat.lightning.base_classes import (
        Trainer,
    )

__all__ = [
    "Trainer",
    "seed_everything",
]

__getattr__ = lightning_getattr(
    __name__,
    {
        "Trainer": ":trainer_hooks.compat.lightning.base_classes",
        "seed_everything": ":trainer_hooks",
    },
)


def __dir__() -> list[str]:
    return __all__
