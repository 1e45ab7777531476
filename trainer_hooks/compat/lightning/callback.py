"""Lightning's callback."""

from __future__ import annotations

from typing import Any

import trainer_hooks
from trainer_hooks.compat.lightning.hook_signatures import take_one_loader

__all__ = ["Callback"]


class Callback(trainer_hooks.Callback):
    """A `trainer_hooks.Callback`, which has Lightning's hooks.

    A `dataloader_idx` without a default, as in Lightning 1.x, is 0 where there is one loader.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        take_one_loader(cls)
