"""Lightning's names for our classes: `import trainer_hooks.compat.lightning as pl`.

Code for Lightning runs with its import lines changed. Names mean what they mean there; a name that
is not offered is an error that says what to use, and docs/coming-from-lightning.md lists them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks._lazy import loader_of
from trainer_hooks.compat.lightning.modules import register_modules

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
    from trainer_hooks.compat.lightning.base_classes import (
        Callback,
        LightningDataModule,
        LightningModule,
        Trainer,
    )

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

register_modules()

__getattr__ = loader_of(
    __name__,
    {
        "Callback": "base_classes",
        "LightningDataModule": "base_classes",
        "LightningModule": "base_classes",
        "Trainer": "base_classes",
        "seed_everything": ":trainer_hooks",
        **dict.fromkeys(_PACKAGES, ""),
    },
)


def __dir__() -> list[str]:
    return __all__
