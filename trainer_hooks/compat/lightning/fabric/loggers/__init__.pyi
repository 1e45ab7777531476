# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from . import csv_logs as csv_logs
from . import logger as logger
from . import tensorboard as tensorboard
from trainer_hooks.compat.lightning._logger_classes import CSVLogger
from trainer_hooks.compat.lightning._logger_classes import TensorBoardLogger
from trainer_hooks.compat.lightning.base_classes import Logger

__all__ = [
    "CSVLogger",
    "Logger",
    "TensorBoardLogger",
]
