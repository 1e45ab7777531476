# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from . import async_plugin as async_plugin
from . import checkpoint_plugin as checkpoint_plugin
from . import torch_plugin as torch_plugin
from trainer_hooks.compat.lightning.plugin_classes import AsyncCheckpointIO
from trainer_hooks.compat.lightning.plugin_classes import CheckpointIO
from trainer_hooks.compat.lightning.plugin_classes import TorchCheckpointIO

__all__ = [
    "AsyncCheckpointIO",
    "CheckpointIO",
    "TorchCheckpointIO",
]
