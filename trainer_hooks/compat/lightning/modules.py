"""The modules of Lightning's package: a table of their names.

Code for Lightning imports from many small modules and their packages. None of them is a file: they
are made from the table when `trainer_hooks.compat.lightning` is imported. Type checkers and editors
know them by the stubs beside this file, which docs/lightning_stubs.py writes.
"""

from __future__ import annotations

from trainer_hooks.compat.virtual_modules import ModuleTable

__all__ = ["EXPORTS", "MODULES", "exports_of"]

_PACKAGE = "trainer_hooks.compat.lightning"

_CALLBACKS = "trainer_hooks.callbacks"
_LOGGERS = "trainer_hooks.loggers"
_LOG_CLASSES = f"{_PACKAGE}._logger_classes"
_SERVICE_CLASSES = f"{_PACKAGE}._service_logger_classes"
_PROFILERS = "trainer_hooks.profilers"
_RANK_ZERO = "trainer_hooks.runtime.rank_zero"
_RUN_STATE = "trainer_hooks.context.run_state"
_MODEL_TABLE = "trainer_hooks.callbacks.model_table"
_MIXIN = "trainer_hooks.module.hyperparameters"
_DEVICE = "trainer_hooks.runtime.device"
_BUILT_IN = f"{_PACKAGE}.built_in_callbacks"
_CLASSES = f"{_PACKAGE}.base_classes"
_HELPERS = f"{_PACKAGE}.helpers"
_TYPES = f"{_PACKAGE}.annotations"
_COMMAND_LINE = f"{_PACKAGE}.command_line"
_CLI_TYPES = f"{_PACKAGE}.command_line_types"
_DEMOS = f"{_PACKAGE}.demo_classes"
_ACCELERATORS = f"{_PACKAGE}.accelerator_classes"
_STRATEGIES = f"{_PACKAGE}.strategy_classes"
_HPARAMS = f"{_PACKAGE}.hparams_files"
_FLAGS = f"{_PACKAGE}.package_flags"
_LIBRARY = f"{_PACKAGE}.library_helpers"
_PLUGINS = f"{_PACKAGE}.plugin_classes"

EXPORTS = (
    # modules of Lightning, module that defines the names, the names (Lightning's=ours)
    (".", "trainer_hooks", "seed_everything"),
    (".", _CLASSES, "Callback LightningDataModule LightningModule Trainer"),
    (".", _HELPERS, "cli_lightning_logo"),
    (".", f"{_PACKAGE}.package_logger", "_logger"),
    ("accelerators fabric.accelerators", _ACCELERATORS, "Accelerator CPUAccelerator"),
    ("accelerators fabric.accelerators", _ACCELERATORS, "CUDAAccelerator MPSAccelerator"),
    ("accelerators fabric.accelerators", _ACCELERATORS, "TPUAccelerator XLAAccelerator"),
    ("accelerators accelerators.hpu", _ACCELERATORS, "HPUAccelerator"),
    ("accelerators", _ACCELERATORS, "AcceleratorRegistry"),
    (
        "accelerators.accelerator fabric.accelerators.accelerator",
        _ACCELERATORS,
        "Accelerator",
    ),
    ("accelerators.cpu fabric.accelerators.cpu", _ACCELERATORS, "CPUAccelerator"),
    ("accelerators.cuda fabric.accelerators.cuda", _ACCELERATORS, "CUDAAccelerator"),
    ("accelerators.mps fabric.accelerators.mps", _ACCELERATORS, "MPSAccelerator"),
    ("accelerators.tpu", _ACCELERATORS, "TPUAccelerator"),
    ("accelerators.xla fabric.accelerators.xla", _ACCELERATORS, "XLAAccelerator"),
    ("callbacks", _BUILT_IN, "BackboneFinetuning BaseFinetuning BasePredictionWriter"),
    ("callbacks", _BUILT_IN, "BatchSizeFinder Checkpoint DeviceStatsMonitor EMAWeightAveraging"),
    ("callbacks", _BUILT_IN, "EarlyStopping GradientAccumulationScheduler LambdaCallback"),
    ("callbacks", _BUILT_IN, "LearningRateFinder LearningRateMonitor ModelCheckpoint"),
    ("callbacks", _BUILT_IN, "ModelPruning ModelSummary OnExceptionCheckpoint ProgressBar"),
    ("callbacks", _BUILT_IN, "ProgressBarBase QuantizationAwareTraining"),
    ("callbacks", _BUILT_IN, "RichModelSummary RichProgressBar SpikeDetection TQDMProgressBar"),
    ("callbacks", _BUILT_IN, "StochasticWeightAveraging ThroughputMonitor Timer WeightAveraging"),
    ("callbacks callbacks.base callbacks.callback", _CLASSES, "Callback"),
    ("callbacks.batch_size_finder", _BUILT_IN, "BatchSizeFinder"),
    ("callbacks.checkpoint", _BUILT_IN, "Checkpoint"),
    ("callbacks.device_stats_monitor", _BUILT_IN, "DeviceStatsMonitor"),
    ("callbacks.early_stopping", _BUILT_IN, "EarlyStopping"),
    ("callbacks.early_stopping", "trainer_hooks.callbacks.early_stopping", "EarlyStoppingReason"),
    ("callbacks.finetuning", _BUILT_IN, "BackboneFinetuning BaseFinetuning"),
    ("callbacks.finetuning", "trainer_hooks.callbacks.finetuning", "multiplicative"),
    ("callbacks.gradient_accumulation_scheduler", _BUILT_IN, "GradientAccumulationScheduler"),
    ("callbacks.lambda_function", _BUILT_IN, "LambdaCallback"),
    ("callbacks.lr_finder", _BUILT_IN, "LearningRateFinder"),
    ("callbacks.lr_monitor", _BUILT_IN, "LearningRateMonitor"),
    ("callbacks.model_checkpoint", _BUILT_IN, "ModelCheckpoint"),
    ("callbacks.model_summary", _BUILT_IN, "ModelSummary"),
    ("callbacks.on_exception_checkpoint", _BUILT_IN, "OnExceptionCheckpoint"),
    ("callbacks.prediction_writer", _BUILT_IN, "BasePredictionWriter"),
    ("callbacks.prediction_writer", _CALLBACKS, "WriteInterval"),
    ("callbacks.progress", _BUILT_IN, "ProgressBar ProgressBarBase RichProgressBar"),
    ("callbacks.progress", _BUILT_IN, "TQDMProgressBar"),
    ("callbacks.progress.base callbacks.progress.progress_bar", _BUILT_IN, "ProgressBar"),
    ("callbacks.progress.base", _BUILT_IN, "ProgressBarBase"),
    ("callbacks.progress.rich_progress", _BUILT_IN, "RichProgressBar"),
    ("callbacks.progress.rich_progress", _CALLBACKS, "RichProgressBarTheme"),
    ("callbacks.progress.tqdm_progress", _BUILT_IN, "TQDMProgressBar"),
    ("callbacks.progress.tqdm_progress", "trainer_hooks.compat.lightning.progress", "Tqdm"),
    ("callbacks.pruning", _BUILT_IN, "ModelPruning"),
    ("callbacks.quantization", _BUILT_IN, "QuantizationAwareTraining"),
    ("callbacks.rich_model_summary", _BUILT_IN, "RichModelSummary"),
    ("callbacks.spike", _BUILT_IN, "SpikeDetection"),
    ("callbacks.spike", _CALLBACKS, "TrainingSpikeException"),
    ("callbacks.stochastic_weight_avg", _BUILT_IN, "StochasticWeightAveraging"),
    ("callbacks.throughput_monitor", _BUILT_IN, "ThroughputMonitor"),
    ("callbacks.timer", _BUILT_IN, "Timer"),
    ("callbacks.timer", _HELPERS, "Interval"),
    ("callbacks.weight_averaging", _BUILT_IN, "EMAWeightAveraging WeightAveraging"),
    ("cli utilities.cli", _COMMAND_LINE, "LightningCLI SaveConfigCallback"),
    ("cli utilities.cli", _CLI_TYPES, "LRSchedulerCallable LRSchedulerType LRSchedulerTypeTuple"),
    ("cli utilities.cli", _CLI_TYPES, "LRSchedulerTypeUnion OptimizerCallable ReduceLROnPlateau"),
    ("cli utilities.cli", f"{_PACKAGE}.argument_parser", "ArgsType LightningArgumentParser"),
    ("core", _CLASSES, "LightningDataModule LightningModule"),
    ("core.datamodule", _CLASSES, "LightningDataModule"),
    ("core.lightning core.module", _CLASSES, "LightningModule"),
    ("core.mixins core.mixins.hparams_mixin", _MIXIN, "HyperparametersMixin"),
    ("core.optimizer", "trainer_hooks.module.optimization", "LightningOptimizer=ManualOptimizer"),
    ("core.saving", _HELPERS, "get_filesystem"),
    ("core.saving", _HPARAMS, "convert load_hparams_from_tags_csv load_hparams_from_yaml"),
    ("core.saving", _HPARAMS, "save_hparams_to_tags_csv save_hparams_to_yaml update_hparams"),
    ("demos demos.boring_classes", _DEMOS, "BoringDataModule BoringModel DemoModel"),
    ("demos.boring_classes", _DEMOS, "BoringDataModuleNoLen IterableBoringDataModule"),
    ("demos.boring_classes", _DEMOS, "ManualOptimBoringModel Net RandomDataset"),
    ("demos.boring_classes", _DEMOS, "RandomDictDataset RandomIterableDataset"),
    ("demos.boring_classes", _DEMOS, "RandomIterableDatasetWithLen"),
    ("demos demos.transformer", _DEMOS, "Transformer"),
    ("fabric fabric.utilities.seed", "trainer_hooks", "seed_everything"),
    ("fabric.loggers", _LOG_CLASSES, "CSVLogger TensorBoardLogger"),
    ("fabric.loggers fabric.loggers.logger", _CLASSES, "Logger"),
    ("fabric.loggers.csv_logs", _LOG_CLASSES, "CSVLogger"),
    ("fabric.loggers.tensorboard", _LOG_CLASSES, "TensorBoardLogger"),
    ("fabric.utilities", _HELPERS, "AttributeDict LightningEnum disable_possible_user_warnings"),
    ("fabric.utilities", _HELPERS, "measure_flops move_data_to_device rank_zero_deprecation"),
    ("fabric.utilities", _HELPERS, "rank_zero_info rank_zero_only rank_zero_warn"),
    ("fabric.utilities", _HELPERS, "suggested_max_num_workers"),
    ("fabric.utilities.data", _HELPERS, "AttributeDict sized_len suggested_max_num_workers"),
    ("fabric.utilities.distributed", _HELPERS, "_distributed_is_initialized"),
    ("fabric.utilities.enums", _HELPERS, "LightningEnum"),
    ("fabric.utilities.imports utilities.imports", _FLAGS, "_IS_INTERACTIVE _IS_WINDOWS"),
    ("fabric.utilities.imports utilities.imports", _FLAGS, "_NUMPY_AVAILABLE"),
    ("fabric.utilities.imports utilities.imports", _FLAGS, "_OMEGACONF_AVAILABLE _RICH_AVAILABLE"),
    ("fabric.utilities.imports utilities.imports", _FLAGS, "_TORCHVISION_AVAILABLE"),
    ("fabric.utilities.seed", _HELPERS, "pl_worker_init_function"),
    ("fabric.utilities.spike", _CALLBACKS, "TrainingSpikeException"),
    ("fabric.utilities.throughput", _HELPERS, "measure_flops"),
    ("fabric.utilities.types utilities.types", _TYPES, "_DEVICE _MAP_LOCATION_TYPE _PATH"),
    ("fabric.utilities.types", _TYPES, "CollectibleGroup Optimizable ProcessGroup ReduceOp"),
    ("fabric.utilities.types", _TYPES, "Steppable _PARAMETERS _Stateful"),
    ("fabric.utilities.types", "torch.optim.lr_scheduler", "LRScheduler ReduceLROnPlateau"),
    ("loggers", _LOG_CLASSES, "CSVLogger TensorBoardLogger"),
    ("loggers", _SERVICE_CLASSES, "MLFlowLogger WandbLogger"),
    ("loggers", _LOGGERS, "CometLogger"),
    ("loggers loggers.logger", _CLASSES, "Logger"),
    ("loggers loggers.base", _CLASSES, "LightningLoggerBase=Logger"),
    ("loggers.base loggers.logger", _LOGGERS, "DummyLogger"),
    ("loggers.base loggers.logger", "trainer_hooks.loggers.dummy", "DummyExperiment"),
    ("loggers.base loggers.logger fabric.loggers.logger", _HELPERS, "rank_zero_experiment"),
    ("loggers.comet", _LOGGERS, "CometLogger"),
    ("loggers.csv_logs", _LOG_CLASSES, "CSVLogger"),
    ("loggers.csv_logs", "trainer_hooks.loggers.csv", "ExperimentWriter=CSVExperiment"),
    ("loggers.mlflow", _SERVICE_CLASSES, "MLFlowLogger"),
    ("loggers.tensorboard", _LOG_CLASSES, "TensorBoardLogger"),
    ("loggers.wandb", _SERVICE_CLASSES, "WandbLogger"),
    ("profiler profilers", _PROFILERS, "AdvancedProfiler PassThroughProfiler PyTorchProfiler"),
    ("profiler profilers", _PROFILERS, "Profiler SimpleProfiler"),
    ("profiler profiler.base", _PROFILERS, "BaseProfiler=Profiler"),
    ("profiler.advanced profilers.advanced", _PROFILERS, "AdvancedProfiler"),
    ("profiler.base profilers.base", _PROFILERS, "PassThroughProfiler"),
    ("profiler.profiler profilers.profiler", _PROFILERS, "Profiler"),
    ("profiler.pytorch profilers.pytorch", _PROFILERS, "PyTorchProfiler"),
    ("profiler.simple profilers.simple", _PROFILERS, "SimpleProfiler"),
    ("strategies", "trainer_hooks", "DDPStrategy FSDPStrategy"),
    ("strategies strategies.parallel", _STRATEGIES, "ParallelStrategy"),
    ("strategies strategies.single_device", _STRATEGIES, "SingleDeviceStrategy"),
    ("strategies strategies.strategy", _STRATEGIES, "Strategy"),
    ("strategies.ddp", "trainer_hooks", "DDPStrategy"),
    ("strategies.fsdp", "trainer_hooks", "FSDPStrategy"),
    ("trainer trainer.trainer", _CLASSES, "Trainer"),
    ("trainer", "trainer_hooks", "seed_everything"),
    ("trainer.states", _RUN_STATE, "RunningStage TrainerFn TrainerState=RunState TrainerStatus"),
    ("trainer.supporters", "trainer_hooks.data.loaders", "CombinedLoader"),
    ("tuner tuner.tuning", "trainer_hooks", "Tuner"),
    ("utilities", _HELPERS, "AttributeDict CombinedLoader GradClipAlgorithmType LightningEnum"),
    ("utilities", _HELPERS, "disable_possible_user_warnings find_shared_parameters grad_norm"),
    ("utilities", _HELPERS, "is_overridden is_picklable measure_flops move_data_to_device"),
    ("utilities", _HELPERS, "rank_zero_deprecation rank_zero_experiment rank_zero_info"),
    ("utilities", _HELPERS, "rank_zero_only rank_zero_warn set_shared_parameters"),
    ("utilities", _HELPERS, "suggested_max_num_workers"),
    (
        "fabric.utilities.apply_func utilities.apply_func",
        "lightning_utilities.core.apply_func",
        "apply_to_collection",
    ),
    ("fabric.utilities.apply_func utilities.apply_func", _HELPERS, "move_data_to_device"),
    ("fabric.utilities.cloud_io utilities.cloud_io", _HELPERS, "get_filesystem"),
    ("utilities.combined_loader", "trainer_hooks.data.loaders", "CombinedLoader"),
    ("utilities.data", "trainer_hooks.data.batch_counts", "extract_batch_size=count_samples"),
    ("utilities.enums", _HELPERS, "GradClipAlgorithmType LightningEnum"),
    (
        "fabric.utilities.exceptions utilities.exceptions",
        "trainer_hooks.errors",
        "MisconfigurationException=TrainerHooksError",
    ),
    ("utilities.exceptions", "trainer_hooks.errors", "SIGTERMException=TerminationSignal"),
    ("utilities.grads", _HELPERS, "grad_norm"),
    ("utilities.memory", _DEVICE, "garbage_collection_cuda=free_memory"),
    ("utilities.memory", _DEVICE, "is_oom_error=is_out_of_memory"),
    ("utilities.memory", _HELPERS, "recursive_detach"),
    ("utilities.model_helpers", _HELPERS, "get_torchvision_model is_overridden"),
    (
        "utilities.model_summary utilities.model_summary.model_summary core.memory",
        f"{_PACKAGE}.model_summary",
        "ModelSummary summarize",
    ),
    (
        "utilities.model_summary utilities.model_summary.model_summary core.memory",
        _MODEL_TABLE,
        "LayerSummary",
    ),
    (
        "utilities.model_summary utilities.model_summary.model_summary core.memory",
        _HELPERS,
        "get_human_readable_count",
    ),
    ("utilities.parameter_tying", _HELPERS, "find_shared_parameters set_shared_parameters"),
    ("utilities.parsing", "trainer_hooks.checkpoint.hparams", "AttributeDict=HyperParameters"),
    ("utilities.parsing", _HELPERS, "get_init_args is_picklable"),
    (
        "fabric.utilities.rank_zero utilities.distributed utilities.rank_zero",
        _RANK_ZERO,
        "rank_zero_debug rank_zero_deprecation rank_zero_info rank_zero_only rank_zero_warn",
    ),
    ("utilities.seed", _HELPERS, "isolate_rng"),
    ("utilities.seed", _HELPERS, "pl_worker_init_function"),
    ("utilities.seed", "trainer_hooks", "seed_everything"),
    ("utilities.types", _TYPES, "EVAL_DATALOADERS EPOCH_OUTPUT LRSchedulerConfig"),
    ("utilities.types", _TYPES, "LRSchedulerConfigType LRSchedulerPLType LRSchedulerType"),
    ("utilities.types", _TYPES, "LRSchedulerTypeTuple LRSchedulerTypeUnion OptimizerConfig"),
    ("utilities.types", _TYPES, "OptimizerLRScheduler OptimizerLRSchedulerConfig STEP_OUTPUT"),
    ("utilities.types", _TYPES, "TRAIN_DATALOADERS _EVALUATE_OUTPUT _METRIC _NUMBER"),
    ("utilities.types", _TYPES, "_PREDICT_OUTPUT"),
    ("utilities.types", "torch.nn.parallel", "DistributedDataParallel"),
    (
        "fabric.utilities.warnings utilities.warnings",
        "trainer_hooks.errors",
        "PossibleUserWarning=TrainerHooksWarning",
    ),
    ("fabric.utilities.warnings", _HELPERS, "disable_possible_user_warnings"),
    ("callbacks.progress.tqdm_progress", _LIBRARY, "convert_inf"),
    ("cli utilities.cli", _LIBRARY, "instantiate_class"),
    ("core.hooks", _PLUGINS, "CheckpointHooks DataHooks ModelHooks"),
    ("loggers.base loggers.logger", _LIBRARY, "merge_dicts"),
    ("utilities.data fabric.utilities.data", _LIBRARY, "has_iterable_dataset has_len"),
    ("utilities.data", _LIBRARY, "has_len_all_ranks"),
    ("utilities.parsing", _LIBRARY, "clean_namespace collect_init_args lightning_getattr"),
    ("utilities.parsing", _LIBRARY, "lightning_hasattr lightning_setattr save_hyperparameters"),
    (
        "fabric.utilities.rank_zero utilities.distributed utilities.rank_zero",
        _LIBRARY,
        "LightningDeprecationWarning WarningCache",
    ),
    ("utilities.warnings fabric.utilities.warnings", _LIBRARY, "WarningCache"),
    ("utilities.signature_utils", _LIBRARY, "is_param_in_hook_signature"),
    (
        "utilities.model_summary utilities.model_summary.model_summary core.memory",
        f"{_PACKAGE}.model_summary",
        "UNKNOWN_SIZE parse_batch_shape",
    ),
    ("plugins fabric.plugins", _PLUGINS, "DoublePrecision HalfPrecision MixedPrecision Precision"),
    ("plugins.precision fabric.plugins.precision", _PLUGINS, "DoublePrecision HalfPrecision"),
    ("plugins.precision fabric.plugins.precision", _PLUGINS, "MixedPrecision Precision"),
    ("plugins.precision.double fabric.plugins.precision.double", _PLUGINS, "DoublePrecision"),
    ("plugins.precision.half fabric.plugins.precision.half", _PLUGINS, "HalfPrecision"),
    ("plugins.precision.amp fabric.plugins.precision.amp", _PLUGINS, "MixedPrecision"),
    ("plugins.precision.precision fabric.plugins.precision.precision", _PLUGINS, "Precision"),
    ("plugins plugins.layer_sync", _PLUGINS, "LayerSync TorchSyncBatchNorm"),
    ("plugins plugins.io", _PLUGINS, "AsyncCheckpointIO CheckpointIO TorchCheckpointIO"),
    ("plugins.io.async_plugin", _PLUGINS, "AsyncCheckpointIO"),
    ("fabric.plugins fabric.plugins.io", _PLUGINS, "CheckpointIO TorchCheckpointIO"),
    ("plugins.io.checkpoint_plugin fabric.plugins.io.checkpoint_io", _PLUGINS, "CheckpointIO"),
    ("plugins.io.torch_plugin fabric.plugins.io.torch_io", _PLUGINS, "TorchCheckpointIO"),
    (
        "plugins.environments fabric.plugins.environments",
        _PLUGINS,
        "ClusterEnvironment LightningEnvironment SLURMEnvironment TorchElasticEnvironment",
    ),
    ("fabric.plugins", _PLUGINS, "ClusterEnvironment"),
    (
        "plugins.environments.slurm_environment fabric.plugins.environments.slurm",
        _PLUGINS,
        "SLURMEnvironment",
    ),
    (
        "plugins.environments.lightning_environment fabric.plugins.environments.lightning",
        _PLUGINS,
        "LightningEnvironment",
    ),
    (
        "plugins.environments.torchelastic_environment fabric.plugins.environments.torchelastic",
        _PLUGINS,
        "TorchElasticEnvironment",
    ),
    (
        "plugins.environments.cluster_environment fabric.plugins.environments.cluster_environment",
        _PLUGINS,
        "ClusterEnvironment",
    ),
)
"""The names of all modules; the first column of a row may hold several paths."""

MODULES = ModuleTable(_PACKAGE, EXPORTS, __file__)
"""The modules, which the package registers."""

exports_of = MODULES.exports
"""Returns the names of a module by its path, each with the module and name that define it."""
