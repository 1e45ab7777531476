# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from . import checkpoint_io as checkpoint_io
from . import torch_io as torch_io
from trainer_hooks.compat.lightning.plugin_classes import CheckpointIO
from trainer_hooks.compat.lightning.plugin_classes import TorchCheckpointIO

__all__ = [
    "CheckpointIO",
    "TorchCheckpointIO",
]
