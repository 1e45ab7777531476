# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from trainer_hooks.compat.lightning.argument_parser import ArgsType
from trainer_hooks.compat.lightning.argument_parser import LightningArgumentParser
from trainer_hooks.compat.lightning.command_line import LightningCLI
from trainer_hooks.compat.lightning.command_line import SaveConfigCallback
from trainer_hooks.compat.lightning.command_line_types import LRSchedulerCallable
from trainer_hooks.compat.lightning.command_line_types import LRSchedulerType
from trainer_hooks.compat.lightning.command_line_types import LRSchedulerTypeTuple
from trainer_hooks.compat.lightning.command_line_types import LRSchedulerTypeUnion
from trainer_hooks.compat.lightning.command_line_types import OptimizerCallable
from trainer_hooks.compat.lightning.command_line_types import ReduceLROnPlateau
from trainer_hooks.compat.lightning.library_helpers import instantiate_class

__all__ = [
    "ArgsType",
    "LRSchedulerCallable",
    "LRSchedulerType",
    "LRSchedulerTypeTuple",
    "LRSchedulerTypeUnion",
    "LightningArgumentParser",
    "LightningCLI",
    "OptimizerCallable",
    "ReduceLROnPlateau",
    "SaveConfigCallback",
    "instantiate_class",
]
