"""Names of pytorch-accelerated for our classes; each is loaded when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks._lazy import loader_of
from trainer_hooks.compat.not_offered import refusing_getattr

if TYPE_CHECKING:
    from trainer_hooks.adapters.pytorch_accelerated.callback_handler import CallbackHandler
    from trainer_hooks.compat.accelerated import callbacks, run_config, tracking, trainer
    from trainer_hooks.compat.accelerated.run_config import (
        TrainerPlaceholderValues,
        TrainerRunConfig,
    )
    from trainer_hooks.compat.accelerated.trainer import Trainer
    from trainer_hooks.compat.accelerated.trainer_callback import TrainerCallback
    from trainer_hooks.errors import StopTrainingError

__all__ = [
    "CallbackHandler",
    "StopTrainingError",
    "Trainer",
    "TrainerCallback",
    "TrainerPlaceholderValues",
    "TrainerRunConfig",
    "callbacks",
    "run_config",
    "tracking",
    "trainer",
]

NOT_OFFERED = {
    "TrainerWithTimmScheduler": "override Trainer.scheduler_step",
    "finetuning": "use trainer_hooks.callbacks.BackboneFinetuning",
}
"""What to write in place of a name that is not offered."""

_load = loader_of(
    __name__,
    {
        "CallbackHandler": ":trainer_hooks.adapters.pytorch_accelerated.callback_handler",
        "StopTrainingError": ":trainer_hooks.errors",
        "Trainer": "trainer",
        "TrainerCallback": "trainer_callback",
        "TrainerPlaceholderValues TrainerRunConfig": "run_config",
        "callbacks run_config tracking trainer": "",
    },
)
__getattr__ = refusing_getattr(__name__, NOT_OFFERED, _load)


def __dir__() -> list[str]:
    return __all__
