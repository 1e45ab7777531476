# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from trainer_hooks.callbacks import BackboneFinetuning
from trainer_hooks.callbacks import BaseFinetuning
from trainer_hooks.callbacks.finetuning import multiplicative

__all__ = [
    "BackboneFinetuning",
    "BaseFinetuning",
    "multiplicative",
]
