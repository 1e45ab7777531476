# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from trainer_hooks.compat.lightning.helpers import _distributed_is_initialized as _distributed_is_initialized

__all__ = [
]
