# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from . import accelerators as accelerators
from . import loggers as loggers
from . import plugins as plugins
from . import utilities as utilities
from trainer_hooks import seed_everything

__all__ = [
    "seed_everything",
]
