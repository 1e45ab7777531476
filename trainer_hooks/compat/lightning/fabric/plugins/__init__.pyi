# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from . import environments as environments
from . import io as io
from . import precision as precision
from trainer_hooks.compat.lightning.plugin_classes import CheckpointIO
from trainer_hooks.compat.lightning.plugin_classes import ClusterEnvironment
from trainer_hooks.compat.lightning.plugin_classes import DoublePrecision
from trainer_hooks.compat.lightning.plugin_classes import HalfPrecision
from trainer_hooks.compat.lightning.plugin_classes import MixedPrecision
from trainer_hooks.compat.lightning.plugin_classes import Precision
from trainer_hooks.compat.lightning.plugin_classes import TorchCheckpointIO

__all__ = [
    "CheckpointIO",
    "ClusterEnvironment",
    "DoublePrecision",
    "HalfPrecision",
    "MixedPrecision",
    "Precision",
    "TorchCheckpointIO",
]
