# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from trainer_hooks.compat.lightning.built_in_callbacks import BatchSizeFinder

__all__ = [
    "BatchSizeFinder",
]
