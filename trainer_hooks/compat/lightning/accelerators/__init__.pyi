# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from . import accelerator as accelerator
from . import cpu as cpu
from . import cuda as cuda
from . import hpu as hpu
from . import mps as mps
from . import tpu as tpu
from . import xla as xla
from trainer_hooks.compat.lightning.accelerator_classes import Accelerator
from trainer_hooks.compat.lightning.accelerator_classes import AcceleratorRegistry
from trainer_hooks.compat.lightning.accelerator_classes import CPUAccelerator
from trainer_hooks.compat.lightning.accelerator_classes import CUDAAccelerator
from trainer_hooks.compat.lightning.accelerator_classes import HPUAccelerator
from trainer_hooks.compat.lightning.accelerator_classes import MPSAccelerator
from trainer_hooks.compat.lightning.accelerator_classes import TPUAccelerator
from trainer_hooks.compat.lightning.accelerator_classes import XLAAccelerator

__all__ = [
    "Accelerator",
    "AcceleratorRegistry",
    "CPUAccelerator",
    "CUDAAccelerator",
    "HPUAccelerator",
    "MPSAccelerator",
    "TPUAccelerator",
    "XLAAccelerator",
]
