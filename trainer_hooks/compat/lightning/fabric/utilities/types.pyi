# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from torch.optim.lr_scheduler import LRScheduler
from torch.optim.lr_scheduler import ReduceLROnPlateau
from trainer_hooks.compat.lightning.annotations import CollectibleGroup
from trainer_hooks.compat.lightning.annotations import Optimizable
from trainer_hooks.compat.lightning.annotations import ProcessGroup
from trainer_hooks.compat.lightning.annotations import ReduceOp
from trainer_hooks.compat.lightning.annotations import Steppable
from trainer_hooks.compat.lightning.annotations import _DEVICE as _DEVICE
from trainer_hooks.compat.lightning.annotations import _MAP_LOCATION_TYPE as _MAP_LOCATION_TYPE
from trainer_hooks.compat.lightning.annotations import _PARAMETERS as _PARAMETERS
from trainer_hooks.compat.lightning.annotations import _PATH as _PATH
from trainer_hooks.compat.lightning.annotations import _Stateful as _Stateful

__all__ = [
    "CollectibleGroup",
    "LRScheduler",
    "Optimizable",
    "ProcessGroup",
    "ReduceLROnPlateau",
    "ReduceOp",
    "Steppable",
]
