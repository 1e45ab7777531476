from .arguments import SUBCOMMANDS as SUBCOMMANDS
from .optuna_pruning import OptunaPruning as OptunaPruning
from .parser import TrainerParser as TrainerParser
from .save_config import SaveConfigCallback as SaveConfigCallback
from .trainer_cli import TrainerCLI as TrainerCLI
