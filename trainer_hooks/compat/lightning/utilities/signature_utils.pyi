# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from trainer_hooks.compat.lightning.library_helpers import is_param_in_hook_signature

__all__ = [
    "is_param_in_hook_signature",
]
