# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from lightning_utilities.core.apply_func import apply_to_collection
from trainer_hooks.compat.lightning.helpers import move_data_to_device

__all__ = [
    "apply_to_collection",
    "move_data_to_device",
]
