# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from trainer_hooks.callbacks import BackboneFinetuning
from trainer_hooks.callbacks import BaseFinetuning
from trainer_hooks.callbacks import BasePredictionWriter
from trainer_hooks.callbacks import BatchSizeFinder
from trainer_hooks.callbacks import Checkpoint
from trainer_hooks.callbacks import DeviceStatsMonitor
from trainer_hooks.callbacks import EMAWeightAveraging
from trainer_hooks.callbacks import EarlyStopping
from trainer_hooks.callbacks import GradientAccumulationScheduler
from trainer_hooks.callbacks import LambdaCallback
from trainer_hooks.callbacks import LearningRateFinder
from trainer_hooks.callbacks import LearningRateMonitor
from trainer_hooks.callbacks import ModelCheckpoint
from trainer_hooks.callbacks import ModelPruning
from trainer_hooks.callbacks import ModelSummary
from trainer_hooks.callbacks import OnExceptionCheckpoint
from trainer_hooks.callbacks import ProgressBar
from trainer_hooks.callbacks import RichModelSummary
from trainer_hooks.callbacks import RichProgressBar
from trainer_hooks.callbacks import SpikeDetection
from trainer_hooks.callbacks import StochasticWeightAveraging
from trainer_hooks.callbacks import TQDMProgressBar
from trainer_hooks.callbacks import ThroughputMonitor
from trainer_hooks.callbacks import Timer
from trainer_hooks.callbacks import WeightAveraging
from trainer_hooks.compat.lightning.base_classes import Callback

__all__ = [
    "BackboneFinetuning",
    "BaseFinetuning",
    "BasePredictionWriter",
    "BatchSizeFinder",
    "Callback",
    "Checkpoint",
    "DeviceStatsMonitor",
    "EMAWeightAveraging",
    "EarlyStopping",
    "GradientAccumulationScheduler",
    "LambdaCallback",
    "LearningRateFinder",
    "LearningRateMonitor",
    "ModelCheckpoint",
    "ModelPruning",
    "ModelSummary",
    "OnExceptionCheckpoint",
    "ProgressBar",
    "RichModelSummary",
    "RichProgressBar",
    "SpikeDetection",
    "StochasticWeightAveraging",
    "TQDMProgressBar",
    "ThroughputMonitor",
    "Timer",
    "WeightAveraging",
]
