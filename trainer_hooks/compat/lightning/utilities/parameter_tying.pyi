# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from trainer_hooks.compat.lightning.helpers import find_shared_parameters
from trainer_hooks.compat.lightning.helpers import set_shared_parameters

__all__ = [
    "find_shared_parameters",
    "set_shared_parameters",
]
