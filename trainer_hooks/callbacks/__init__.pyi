from trainer_hooks.callback import Callback as Callback
from trainer_hooks.errors import StopTraining as StopTraining

from .averaging.stochastic_weight_averaging import (
    StochasticWeightAveraging as StochasticWeightAveraging,
)
from .averaging.weight_averaging import EMAWeightAveraging as EMAWeightAveraging
from .averaging.weight_averaging import WeightAveraging as WeightAveraging
from .compression.model_pruning import ModelPruning as ModelPruning
from .compression.quantization_aware_training import (
    QuantizationAwareTraining as QuantizationAwareTraining,
)
from .early_stopping import EarlyStopping as EarlyStopping
from .exporting.export import export_for_inference as export_for_inference
from .exporting.export_for_inference_callback import (
    ExportForInferenceCallback as ExportForInferenceCallback,
)
from .finetuning import BackboneFinetuning as BackboneFinetuning
from .finetuning import BaseFinetuning as BaseFinetuning
from .guarding.memory_release import FreeOutputs as FreeOutputs
from .guarding.memory_release import GarbageCollection as GarbageCollection
from .guarding.nan_guard import NaNGuard as NaNGuard
from .guarding.spike_detection import SpikeDetection as SpikeDetection
from .guarding.spike_detection import TrainingSpikeException as TrainingSpikeException
from .lambda_callback import LambdaCallback as LambdaCallback
from .model_summary import ModelSummary as ModelSummary
from .model_summary import RichModelSummary as RichModelSummary
from .module_preparation import ConvertSyncBatchNormCallback as ConvertSyncBatchNormCallback
from .module_preparation import MoveModulesToDeviceCallback as MoveModulesToDeviceCallback
from .monitors.activation_monitor import ActivationMonitor as ActivationMonitor
from .monitors.device_stats_monitor import DeviceStatsMonitor as DeviceStatsMonitor
from .monitors.gradient_norm_monitor import GradientNormMonitor as GradientNormMonitor
from .monitors.learning_rate_monitor import LearningRateMonitor as LearningRateMonitor
from .monitors.memory_snapshot import MemorySnapshot as MemorySnapshot
from .monitors.oom_observer import OOMObserver as OOMObserver
from .monitors.profiler import Profiler as Profiler
from .monitors.runtime_estimator import RuntimeEstimator as RuntimeEstimator
from .monitors.slow_step_detector import SlowStepDetector as SlowStepDetector
from .monitors.throughput import Throughput as Throughput
from .monitors.throughput import ThroughputMonitor as ThroughputMonitor
from .monitors.throughput import measure_flops as measure_flops
from .prediction_writer import BasePredictionWriter as BasePredictionWriter
from .prediction_writer import PredictionWriter as PredictionWriter
from .prediction_writer import WriteInterval as WriteInterval
from .progress.printing import PrintMetricsCallback as PrintMetricsCallback
from .progress.printing import PrintProgressCallback as PrintProgressCallback
from .progress.progress_bar import ProgressBar as ProgressBar
from .progress.rich_progress import RichProgressBar as RichProgressBar
from .progress.rich_progress import RichProgressBarTheme as RichProgressBarTheme
from .progress.tqdm_progress import TQDMProgressBar as TQDMProgressBar
from .reporting.generate import Generate as Generate
from .reporting.image_visualizer import ImageVisualizer as ImageVisualizer
from .reporting.mlperf import MLPerfCallback as MLPerfCallback
from .reporting.notify import Notify as Notify
from .reporting.run_manifest import RunManifest as RunManifest
from .reporting.sample_inspector import SampleInspector as SampleInspector
from .saving.checkpoint import Checkpoint as Checkpoint
from .saving.load_checkpoint import LoadCheckpoint as LoadCheckpoint
from .saving.model_checkpoint import ModelCheckpoint as ModelCheckpoint
from .saving.on_exception_checkpoint import OnExceptionCheckpoint as OnExceptionCheckpoint
from .saving.wsd_checkpoint import WSDCheckpointCallback as WSDCheckpointCallback
from .timer import Timer as Timer
from .tuning.batch_size_finder import BatchSizeFinder as BatchSizeFinder
from .tuning.gradient_accumulation import (
    GradientAccumulationScheduler as GradientAccumulationScheduler,
)
from .tuning.lr_finder import LearningRateFinder as LearningRateFinder
