# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from trainer_hooks.compat.lightning.library_helpers import LightningDeprecationWarning
from trainer_hooks.compat.lightning.library_helpers import WarningCache
from trainer_hooks.runtime.rank_zero import rank_zero_debug
from trainer_hooks.runtime.rank_zero import rank_zero_deprecation
from trainer_hooks.runtime.rank_zero import rank_zero_info
from trainer_hooks.runtime.rank_zero import rank_zero_only
from trainer_hooks.runtime.rank_zero import rank_zero_warn

__all__ = [
    "LightningDeprecationWarning",
    "WarningCache",
    "rank_zero_debug",
    "rank_zero_deprecation",
    "rank_zero_info",
    "rank_zero_only",
    "rank_zero_warn",
]
