# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from . import base as base
from . import progress_bar as progress_bar
from . import rich_progress as rich_progress
from . import tqdm_progress as tqdm_progress
from trainer_hooks.compat.lightning.built_in_callbacks import ProgressBar
from trainer_hooks.compat.lightning.built_in_callbacks import ProgressBarBase
from trainer_hooks.compat.lightning.built_in_callbacks import RichProgressBar
from trainer_hooks.compat.lightning.built_in_callbacks import TQDMProgressBar

__all__ = [
    "ProgressBar",
    "ProgressBarBase",
    "RichProgressBar",
    "TQDMProgressBar",
]
