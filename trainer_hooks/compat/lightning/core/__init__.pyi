# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from . import datamodule as datamodule
from . import hooks as hooks
from . import lightning as lightning
from . import memory as memory
from . import mixins as mixins
from . import module as module
from . import optimizer as optimizer
from . import saving as saving
from trainer_hooks.compat.lightning.base_classes import LightningDataModule
from trainer_hooks.compat.lightning.base_classes import LightningModule

__all__ = [
    "LightningDataModule",
    "LightningModule",
]
