# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from . import base as base
from . import batch_size_finder as batch_size_finder
from . import callback as callback
from . import checkpoint as checkpoint
from . import device_stats_monitor as device_stats_monitor
from . import early_stopping as early_stopping
from . import finetuning as finetuning
from . import gradient_accumulation_scheduler as gradient_accumulation_scheduler
from . import lambda_function as lambda_function
from . import lr_finder as lr_finder
from . import lr_monitor as lr_monitor
from . import model_checkpoint as model_checkpoint
from . import model_summary as model_summary
from . import on_exception_checkpoint as on_exception_checkpoint
from . import prediction_writer as prediction_writer
from . import progress as progress
from . import pruning as pruning
from . import quantization as quantization
from . import rich_model_summary as rich_model_summary
from . import spike as spike
from . import stochastic_weight_avg as stochastic_weight_avg
from . import throughput_monitor as throughput_monitor
from . import timer as timer
from . import weight_averaging as weight_averaging
from trainer_hooks.compat.lightning.base_classes import Callback
from trainer_hooks.compat.lightning.built_in_callbacks import BackboneFinetuning
from trainer_hooks.compat.lightning.built_in_callbacks import BaseFinetuning
from trainer_hooks.compat.lightning.built_in_callbacks import BasePredictionWriter
from trainer_hooks.compat.lightning.built_in_callbacks import BatchSizeFinder
from trainer_hooks.compat.lightning.built_in_callbacks import Checkpoint
from trainer_hooks.compat.lightning.built_in_callbacks import DeviceStatsMonitor
from trainer_hooks.compat.lightning.built_in_callbacks import EMAWeightAveraging
from trainer_hooks.compat.lightning.built_in_callbacks import EarlyStopping
from trainer_hooks.compat.lightning.built_in_callbacks import GradientAccumulationScheduler
from trainer_hooks.compat.lightning.built_in_callbacks import LambdaCallback
from trainer_hooks.compat.lightning.built_in_callbacks import LearningRateFinder
from trainer_hooks.compat.lightning.built_in_callbacks import LearningRateMonitor
from trainer_hooks.compat.lightning.built_in_callbacks import ModelCheckpoint
from trainer_hooks.compat.lightning.built_in_callbacks import ModelPruning
from trainer_hooks.compat.lightning.built_in_callbacks import ModelSummary
from trainer_hooks.compat.lightning.built_in_callbacks import OnExceptionCheckpoint
from trainer_hooks.compat.lightning.built_in_callbacks import ProgressBar
from trainer_hooks.compat.lightning.built_in_callbacks import ProgressBarBase
from trainer_hooks.compat.lightning.built_in_callbacks import QuantizationAwareTraining
from trainer_hooks.compat.lightning.built_in_callbacks import RichModelSummary
from trainer_hooks.compat.lightning.built_in_callbacks import RichProgressBar
from trainer_hooks.compat.lightning.built_in_callbacks import SpikeDetection
from trainer_hooks.compat.lightning.built_in_callbacks import StochasticWeightAveraging
from trainer_hooks.compat.lightning.built_in_callbacks import TQDMProgressBar
from trainer_hooks.compat.lightning.built_in_callbacks import ThroughputMonitor
from trainer_hooks.compat.lightning.built_in_callbacks import Timer
from trainer_hooks.compat.lightning.built_in_callbacks import WeightAveraging

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
    "ProgressBarBase",
    "QuantizationAwareTraining",
    "RichModelSummary",
    "RichProgressBar",
    "SpikeDetection",
    "StochasticWeightAveraging",
    "TQDMProgressBar",
    "ThroughputMonitor",
    "Timer",
    "WeightAveraging",
]
