# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from trainer_hooks.callbacks import ProgressBar
from trainer_hooks.callbacks import ProgressBar as ProgressBarBase

__all__ = [
    "ProgressBar",
    "ProgressBarBase",
]
