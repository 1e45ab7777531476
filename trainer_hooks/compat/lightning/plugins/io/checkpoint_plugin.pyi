# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from trainer_hooks.compat.lightning.plugin_classes import CheckpointIO

__all__ = [
    "CheckpointIO",
]
