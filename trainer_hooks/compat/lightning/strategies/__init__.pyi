# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from . import ddp as ddp
from . import fsdp as fsdp
from trainer_hooks import DDPStrategy
from trainer_hooks import FSDPStrategy

__all__ = [
    "DDPStrategy",
    "FSDPStrategy",
]
