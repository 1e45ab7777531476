# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from trainer_hooks.compat.lightning.base_classes import Callback

__all__ = [
    "Callback",
]
