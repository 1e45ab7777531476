# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from trainer_hooks.compat.lightning.strategy_classes import SingleDeviceStrategy

__all__ = [
    "SingleDeviceStrategy",
]
