# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from trainer_hooks.compat.lightning.built_in_callbacks import TQDMProgressBar
from trainer_hooks.compat.lightning.library_helpers import convert_inf
from trainer_hooks.compat.lightning.progress import Tqdm

__all__ = [
    "TQDMProgressBar",
    "Tqdm",
    "convert_inf",
]
