# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from . import base as base
from . import comet as comet
from . import csv_logs as csv_logs
from . import logger as logger
from . import mlflow as mlflow
from . import tensorboard as tensorboard
from . import wandb as wandb
from trainer_hooks.compat.lightning._logger_classes import CSVLogger
from trainer_hooks.compat.lightning._logger_classes import TensorBoardLogger
from trainer_hooks.compat.lightning._service_logger_classes import MLFlowLogger
from trainer_hooks.compat.lightning._service_logger_classes import WandbLogger
from trainer_hooks.compat.lightning.base_classes import Logger
from trainer_hooks.compat.lightning.base_classes import Logger as LightningLoggerBase
from trainer_hooks.loggers import CometLogger

__all__ = [
    "CSVLogger",
    "CometLogger",
    "LightningLoggerBase",
    "Logger",
    "MLFlowLogger",
    "TensorBoardLogger",
    "WandbLogger",
]
