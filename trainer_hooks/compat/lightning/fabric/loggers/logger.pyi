# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from trainer_hooks.compat.lightning.base_classes import Logger
from trainer_hooks.compat.lightning.helpers import rank_zero_experiment

__all__ = [
    "Logger",
    "rank_zero_experiment",
]
