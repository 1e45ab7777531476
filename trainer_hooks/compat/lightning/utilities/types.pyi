# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from torch.nn.parallel import DistributedDataParallel
from trainer_hooks.compat.lightning.annotations import EPOCH_OUTPUT
from trainer_hooks.compat.lightning.annotations import EVAL_DATALOADERS
from trainer_hooks.compat.lightning.annotations import LRSchedulerConfig
from trainer_hooks.compat.lightning.annotations import LRSchedulerConfigType
from trainer_hooks.compat.lightning.annotations import LRSchedulerPLType
from trainer_hooks.compat.lightning.annotations import LRSchedulerType
from trainer_hooks.compat.lightning.annotations import LRSchedulerTypeTuple
from trainer_hooks.compat.lightning.annotations import LRSchedulerTypeUnion
from trainer_hooks.compat.lightning.annotations import OptimizerConfig
from trainer_hooks.compat.lightning.annotations import OptimizerLRScheduler
from trainer_hooks.compat.lightning.annotations import OptimizerLRSchedulerConfig
from trainer_hooks.compat.lightning.annotations import STEP_OUTPUT
from trainer_hooks.compat.lightning.annotations import TRAIN_DATALOADERS
from trainer_hooks.compat.lightning.annotations import _DEVICE as _DEVICE
from trainer_hooks.compat.lightning.annotations import _EVALUATE_OUTPUT as _EVALUATE_OUTPUT
from trainer_hooks.compat.lightning.annotations import _MAP_LOCATION_TYPE as _MAP_LOCATION_TYPE
from trainer_hooks.compat.lightning.annotations import _METRIC as _METRIC
from trainer_hooks.compat.lightning.annotations import _NUMBER as _NUMBER
from trainer_hooks.compat.lightning.annotations import _PATH as _PATH
from trainer_hooks.compat.lightning.annotations import _PREDICT_OUTPUT as _PREDICT_OUTPUT

__all__ = [
    "DistributedDataParallel",
    "EPOCH_OUTPUT",
    "EVAL_DATALOADERS",
    "LRSchedulerConfig",
    "LRSchedulerConfigType",
    "LRSchedulerPLType",
    "LRSchedulerType",
    "LRSchedulerTypeTuple",
    "LRSchedulerTypeUnion",
    "OptimizerConfig",
    "OptimizerLRScheduler",
    "OptimizerLRSchedulerConfig",
    "STEP_OUTPUT",
    "TRAIN_DATALOADERS",
]
