"""The Trainer: what users call and read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks._lazy import loader_of

if TYPE_CHECKING:
    from trainer_hooks.trainer.trainer import Trainer
    from trainer_hooks.trainer.tuner import Tuner

__all__ = [
    "Trainer",
    "Tuner",
]

if not TYPE_CHECKING:  # so that a name that is not there is an error to type checkers
    __getattr__ = loader_of(
        __name__,
        {
            "Trainer": "trainer",
            "Tuner": "tuner",
        },
    )
