# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from trainer_hooks.callbacks import WriteInterval
from trainer_hooks.compat.lightning.built_in_callbacks import BasePredictionWriter

__all__ = [
    "BasePredictionWriter",
    "WriteInterval",
]
