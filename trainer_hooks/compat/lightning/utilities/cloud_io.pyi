# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from trainer_hooks.compat.lightning.helpers import get_filesystem

__all__ = [
    "get_filesystem",
]
