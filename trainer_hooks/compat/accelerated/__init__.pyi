from trainer_hooks.adapters.pytorch_accelerated.callback_handler import (
    CallbackHandler as CallbackHandler,
)
from trainer_hooks.errors import StopTrainingError as StopTrainingError

from . import callbacks as callbacks
from . import finetuning as finetuning
from . import run_config as run_config
from . import schedulers as schedulers
from . import tracking as tracking
from . import trainer as trainer
from . import utils as utils
from .run_config import TrainerPlaceholderValues as TrainerPlaceholderValues
from .run_config import TrainerRunConfig as TrainerRunConfig
from .trainer import Trainer as Trainer
from .trainer_callback import TrainerCallback as TrainerCallback
