# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from . import states as states
from . import supporters as supporters
from . import trainer as trainer
from trainer_hooks import seed_everything
from trainer_hooks.compat.lightning.base_classes import Trainer

__all__ = [
    "Trainer",
    "seed_everything",
]
