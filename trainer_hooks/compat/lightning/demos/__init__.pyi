# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from . import boring_classes as boring_classes
from . import transformer as transformer
from trainer_hooks.compat.lightning.demo_classes import BoringDataModule
from trainer_hooks.compat.lightning.demo_classes import BoringModel
from trainer_hooks.compat.lightning.demo_classes import DemoModel
from trainer_hooks.compat.lightning.demo_classes import Transformer

__all__ = [
    "BoringDataModule",
    "BoringModel",
    "DemoModel",
    "Transformer",
]
