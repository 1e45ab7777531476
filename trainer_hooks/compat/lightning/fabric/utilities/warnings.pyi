# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from trainer_hooks.compat.lightning.helpers import disable_possible_user_warnings
from trainer_hooks.compat.lightning.library_helpers import WarningCache
from trainer_hooks.errors import TrainerHooksWarning as PossibleUserWarning

__all__ = [
    "PossibleUserWarning",
    "WarningCache",
    "disable_possible_user_warnings",
]
