"""The strategies, at Lightning's path."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks.compat.lightning.modules import lightning_getattr

if TYPE_CHECKING:
    from trainer_hooks import (
        DDPStrategy,
        FSDPStrategy,
    )

__all__ = [
    "DDPStrategy",
    "FSDPStrategy",
]

__getattr__ = lightning_getattr(__name__, dict.fromkeys(__all__, ":trainer_hooks"))


def __dir__() -> list[str]:
    return __all__
