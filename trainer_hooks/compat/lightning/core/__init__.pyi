# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from . import datamodule as datamodule
from . import hooks as hooks
from . import module as module
from . import optimizer as optimizer
from trainer_hooks.compat.lightning.base_classes import LightningDataModule
from trainer_hooks.compat.lightning.base_classes import LightningModule

__all__ = [
    "LightningDataModule",
    "LightningModule",
]
