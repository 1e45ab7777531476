"""Lightning's names over what is here: `import trainer_hooks.compat.lightning as pl`.

Code for Lightning runs by its import lines. Names mean what they mean there; what is not here says
what to use instead where it is used, and docs/coming-from-lightning.md lists it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks._lazy import loader_of

if TYPE_CHECKING:
    from trainer_hooks import seed_everything
    from trainer_hooks.compat.lightning import (
        accelerators,
        callbacks,
        cli,
        core,
        loggers,
        plugins,
        profilers,
        strategies,
        trainer,
        tuner,
        utilities,
    )
    from trainer_hooks.compat.lightning.callback import Callback
    from trainer_hooks.compat.lightning.datamodule import LightningDataModule
    from trainer_hooks.compat.lightning.module import LightningModule
    from trainer_hooks.compat.lightning.trainer.trainer import Trainer

__all__ = [
    "Callback",
    "LightningDataModule",
    "LightningModule",
    "Trainer",
    "accelerators",
    "callbacks",
    "cli",
    "core",
    "loggers",
    "plugins",
    "profilers",
    "seed_everything",
    "strategies",
    "trainer",
    "tuner",
    "utilities",
]

_PACKAGES = (
    "accelerators", "callbacks", "cli", "core", "loggers", "plugins", "profilers", "strategies",
    "trainer", "tuner", "utilities",
)  # fmt: skip

__getattr__ = loader_of(
    __name__,
    {
        "Callback": "callback",
        "LightningDataModule": "datamodule",
        "LightningModule": "module",
        "Trainer": "trainer.trainer",
        "seed_everything": ":trainer_hooks",
        **dict.fromkeys(_PACKAGES, ""),
    },
)


def __dir__() -> list[str]:
    return __all__
