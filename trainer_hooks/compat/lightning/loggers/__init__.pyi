# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from trainer_hooks.loggers import CSVLogger
from trainer_hooks.loggers import CometLogger
from trainer_hooks.loggers import Logger
from trainer_hooks.loggers import MLFlowLogger
from trainer_hooks.loggers import NeptuneLogger
from trainer_hooks.loggers import TensorBoardLogger
from trainer_hooks.loggers import WandbLogger

__all__ = [
    "CSVLogger",
    "CometLogger",
    "Logger",
    "MLFlowLogger",
    "NeptuneLogger",
    "TensorBoardLogger",
    "WandbLogger",
]
