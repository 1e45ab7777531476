# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from . import tuning as tuning
from trainer_hooks import Tuner

__all__ = [
    "Tuner",
]
