# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from trainer_hooks.compat.lightning.demo_classes import Transformer

__all__ = [
    "Transformer",
]
