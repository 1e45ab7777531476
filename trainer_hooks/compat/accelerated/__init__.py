"""The names of pytorch-accelerated over what is here; each is loaded when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks._lazy import loader_of

if TYPE_CHECKING:
    from trainer_hooks.compat.accelerated import callbacks
    from trainer_hooks.compat.accelerated.trainer_callback import TrainerCallback
    from trainer_hooks.errors import StopTrainingError

__all__ = ["StopTrainingError", "TrainerCallback", "callbacks"]

__getattr__ = loader_of(
    __name__,
    {
        "StopTrainingError": ":trainer_hooks.errors",
        "TrainerCallback": "trainer_callback",
        "callbacks": "",
    },
)


def __dir__() -> list[str]:
    return __all__
