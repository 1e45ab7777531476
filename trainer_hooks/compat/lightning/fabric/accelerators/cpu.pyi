# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from trainer_hooks.compat.lightning.accelerator_classes import CPUAccelerator

__all__ = [
    "CPUAccelerator",
]
