# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from trainer_hooks.data.loaders import CombinedLoader

__all__ = [
    "CombinedLoader",
]
