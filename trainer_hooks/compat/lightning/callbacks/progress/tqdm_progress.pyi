# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from tqdm.auto import tqdm as Tqdm
from trainer_hooks.callbacks import TQDMProgressBar

__all__ = [
    "TQDMProgressBar",
    "Tqdm",
]
