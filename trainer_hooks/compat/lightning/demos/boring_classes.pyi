# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from trainer_hooks.compat.lightning.demo_classes import BoringDataModule
from trainer_hooks.compat.lightning.demo_classes import BoringDataModuleNoLen
from trainer_hooks.compat.lightning.demo_classes import BoringModel
from trainer_hooks.compat.lightning.demo_classes import DemoModel
from trainer_hooks.compat.lightning.demo_classes import IterableBoringDataModule
from trainer_hooks.compat.lightning.demo_classes import ManualOptimBoringModel
from trainer_hooks.compat.lightning.demo_classes import Net
from trainer_hooks.compat.lightning.demo_classes import RandomDataset
from trainer_hooks.compat.lightning.demo_classes import RandomDictDataset
from trainer_hooks.compat.lightning.demo_classes import RandomIterableDataset
from trainer_hooks.compat.lightning.demo_classes import RandomIterableDatasetWithLen

__all__ = [
    "BoringDataModule",
    "BoringDataModuleNoLen",
    "BoringModel",
    "DemoModel",
    "IterableBoringDataModule",
    "ManualOptimBoringModel",
    "Net",
    "RandomDataset",
    "RandomDictDataset",
    "RandomIterableDataset",
    "RandomIterableDatasetWithLen",
]
