# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from trainer_hooks.callbacks import EarlyStopping
from trainer_hooks.callbacks.early_stopping import EarlyStoppingReason

__all__ = [
    "EarlyStopping",
    "EarlyStoppingReason",
]
