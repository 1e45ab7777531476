# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from trainer_hooks.callbacks.finetuning import multiplicative
from trainer_hooks.compat.lightning.built_in_callbacks import BackboneFinetuning
from trainer_hooks.compat.lightning.built_in_callbacks import BaseFinetuning

__all__ = [
    "BackboneFinetuning",
    "BaseFinetuning",
    "multiplicative",
]
