# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from . import cluster_environment as cluster_environment
from . import lightning as lightning
from . import slurm as slurm
from . import torchelastic as torchelastic
from trainer_hooks.compat.lightning.plugin_classes import ClusterEnvironment
from trainer_hooks.compat.lightning.plugin_classes import LightningEnvironment
from trainer_hooks.compat.lightning.plugin_classes import SLURMEnvironment
from trainer_hooks.compat.lightning.plugin_classes import TorchElasticEnvironment

__all__ = [
    "ClusterEnvironment",
    "LightningEnvironment",
    "SLURMEnvironment",
    "TorchElasticEnvironment",
]
