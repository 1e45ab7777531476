# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from trainer_hooks.compat.lightning.helpers import measure_flops

__all__ = [
    "measure_flops",
]
