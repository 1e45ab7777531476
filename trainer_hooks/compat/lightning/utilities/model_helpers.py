"""`is_overridden`, where Lightning has it."""

from __future__ import annotations

from trainer_hooks.compat.refusing import refusing
from trainer_hooks.utilities import is_overridden

__all__ = ["is_overridden"]

__getattr__ = refusing(
    __name__,
    {
        "get_torchvision_model": "use torchvision.models.get_model",
    },
)
