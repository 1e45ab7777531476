# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from . import ddp as ddp
from . import fsdp as fsdp
from . import parallel as parallel
from . import single_device as single_device
from . import strategy as strategy
from trainer_hooks import DDPStrategy
from trainer_hooks import FSDPStrategy
from trainer_hooks.compat.lightning.strategy_classes import ParallelStrategy
from trainer_hooks.compat.lightning.strategy_classes import SingleDeviceStrategy
from trainer_hooks.compat.lightning.strategy_classes import Strategy

__all__ = [
    "DDPStrategy",
    "FSDPStrategy",
    "ParallelStrategy",
    "SingleDeviceStrategy",
    "Strategy",
]
