# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from trainer_hooks.compat.lightning.plugin_classes import CheckpointHooks
from trainer_hooks.compat.lightning.plugin_classes import DataHooks
from trainer_hooks.compat.lightning.plugin_classes import ModelHooks

__all__ = [
    "CheckpointHooks",
    "DataHooks",
    "ModelHooks",
]
