# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from trainer_hooks.compat.lightning.built_in_callbacks import Timer
from trainer_hooks.compat.lightning.helpers import Interval

__all__ = [
    "Interval",
    "Timer",
]
