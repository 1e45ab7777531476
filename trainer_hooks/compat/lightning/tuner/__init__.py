"""The Tuner, at Lightning's path."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks.compat.lightning.modules import lightning_getattr

if TYPE_CHECKING:
    from trainer_hooks import (
        Tuner,
    )

__all__ = [
    "Tuner",
]

__getattr__ = lightning_getattr(__name__, {"Tuner": ":trainer_hooks"})


def __dir__() -> list[str]:
    return __all__
