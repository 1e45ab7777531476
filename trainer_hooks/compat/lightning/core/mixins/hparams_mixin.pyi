# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from trainer_hooks.module.hyperparameters import HyperparametersMixin

__all__ = [
    "HyperparametersMixin",
]
