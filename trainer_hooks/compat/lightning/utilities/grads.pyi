# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from trainer_hooks.compat.lightning.helpers import grad_norm

__all__ = [
    "grad_norm",
]
