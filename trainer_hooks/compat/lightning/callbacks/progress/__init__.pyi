# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from trainer_hooks.callbacks import ProgressBar
from trainer_hooks.callbacks import RichProgressBar
from trainer_hooks.callbacks import TQDMProgressBar

__all__ = [
    "ProgressBar",
    "RichProgressBar",
    "TQDMProgressBar",
]
