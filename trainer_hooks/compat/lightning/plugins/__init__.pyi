# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from . import environments as environments
from . import io as io
from . import layer_sync as layer_sync
from . import precision as precision
from trainer_hooks.compat.lightning.plugin_classes import AsyncCheckpointIO
from trainer_hooks.compat.lightning.plugin_classes import CheckpointIO
from trainer_hooks.compat.lightning.plugin_classes import DoublePrecision
from trainer_hooks.compat.lightning.plugin_classes import HalfPrecision
from trainer_hooks.compat.lightning.plugin_classes import LayerSync
from trainer_hooks.compat.lightning.plugin_classes import MixedPrecision
from trainer_hooks.compat.lightning.plugin_classes import Precision
from trainer_hooks.compat.lightning.plugin_classes import TorchCheckpointIO
from trainer_hooks.compat.lightning.plugin_classes import TorchSyncBatchNorm

__all__ = [
    "AsyncCheckpointIO",
    "CheckpointIO",
    "DoublePrecision",
    "HalfPrecision",
    "LayerSync",
    "MixedPrecision",
    "Precision",
    "TorchCheckpointIO",
    "TorchSyncBatchNorm",
]
