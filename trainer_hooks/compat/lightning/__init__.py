"""Lightning's names for our classes: `import trainer_hooks.compat.lightning as pl`.

Code for Lightning runs with its import lines changed. Names mean what they mean there; a name that
is not offered is an error that says what to use, and docs/coming-from-lightning.md lists them.
It stands for `pytorch_lightning`, `lightning.pytorch` and `lightning`, so that its attribute
`pytorch` is the package itself, and `fabric` has the helpers that such programs take from Fabric.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks.compat.lightning.modules import MODULES

if TYPE_CHECKING:
    from trainer_hooks import seed_everything
    from trainer_hooks.compat.lightning import (
        accelerators,
        callbacks,
        cli,
        core,
        demos,
        fabric,
        loggers,
        plugins,
        profilers,
        pytorch,
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
    from trainer_hooks.compat.lightning.helpers import cli_lightning_logo

__all__ = [
    "Callback",
    "LightningDataModule",
    "LightningModule",
    "Trainer",
    "__version__",
    "accelerators",
    "callbacks",
    "cli",
    "cli_lightning_logo",
    "core",
    "demos",
    "fabric",
    "loggers",
    "plugins",
    "profilers",
    "pytorch",
    "seed_everything",
    "strategies",
    "trainer",
    "tuner",
    "utilities",
]

__version__ = "2.6.6"
"""The version of Lightning whose names these are, which programs compare before they use one;
`trainer_hooks.__version__` is the version of this package."""

MODULES.register("pytorch")

__getattr__ = MODULES.getattr_of(__name__, {"pytorch": ""})


def __dir__() -> list[str]:
    return __all__
