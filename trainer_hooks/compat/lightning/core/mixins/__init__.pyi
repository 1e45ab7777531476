# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from . import hparams_mixin as hparams_mixin
from trainer_hooks.module.hyperparameters import HyperparametersMixin

__all__ = [
    "HyperparametersMixin",
]
