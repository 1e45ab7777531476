# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from trainer_hooks.compat.lightning.utilities import is_overridden

__all__ = [
    "is_overridden",
]
