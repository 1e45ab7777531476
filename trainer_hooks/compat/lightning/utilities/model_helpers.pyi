# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from trainer_hooks.compat.lightning.helpers import get_torchvision_model
from trainer_hooks.compat.lightning.helpers import is_overridden

__all__ = [
    "get_torchvision_model",
    "is_overridden",
]
