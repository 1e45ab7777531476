# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from . import accelerator as accelerator
from . import cpu as cpu
from . import cuda as cuda
from . import mps as mps
from . import xla as xla
from trainer_hooks.compat.lightning.accelerator_classes import Accelerator
from trainer_hooks.compat.lightning.accelerator_classes import CPUAccelerator
from trainer_hooks.compat.lightning.accelerator_classes import CUDAAccelerator
from trainer_hooks.compat.lightning.accelerator_classes import MPSAccelerator
from trainer_hooks.compat.lightning.accelerator_classes import TPUAccelerator
from trainer_hooks.compat.lightning.accelerator_classes import XLAAccelerator

__all__ = [
    "Accelerator",
    "CPUAccelerator",
    "CUDAAccelerator",
    "MPSAccelerator",
    "TPUAccelerator",
    "XLAAccelerator",
]
