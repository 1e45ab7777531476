# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from trainer_hooks.callbacks import RichProgressBarTheme
from trainer_hooks.compat.lightning.built_in_callbacks import RichProgressBar

__all__ = [
    "RichProgressBar",
    "RichProgressBarTheme",
]
