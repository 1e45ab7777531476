# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from trainer_hooks.compat.lightning.helpers import recursive_detach
from trainer_hooks.runtime.device import free_memory as garbage_collection_cuda
from trainer_hooks.runtime.device import is_out_of_memory as is_oom_error

__all__ = [
    "garbage_collection_cuda",
    "is_oom_error",
    "recursive_detach",
]
