"""Lightning's module."""

from __future__ import annotations

from typing import Any

from trainer_hooks import Module
from trainer_hooks.compat.lightning.hook_signatures import take_one_loader

__all__ = ["LightningModule"]


class LightningModule(Module):
    """A `trainer_hooks.Module`, which has Lightning's hooks, arguments and forms of results.

    A `dataloader_idx` without a default, as in Lightning 1.x, is 0 where there is one loader.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        take_one_loader(cls)
