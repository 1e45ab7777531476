"""Lightning's names that are not offered here, each with its replacement."""

from __future__ import annotations

__all__ = ["NOT_OFFERED"]

_NO_TPU = "there are no TPUs here"
_NO_HPU = "there are no HPUs here"
_SAVING = (
    "checkpoints go to any path or fsspec address, whole or not at all; for saves in the "
    "background pass ModelCheckpoint(async_save=True)"
)
_SYNC = "pass Trainer(sync_batchnorm=True)"
_DETECTED = "torchrun, SLURM and a process group that is there are found without it"
_TORCHRUN = "start the processes with torchrun"
_OOM = "use is_oom_error, which knows them all"
_SUMMARY = "print summarize(module)"
_HPARAMS = "call self.save_hyperparameters() in __init__"
_HOOKS_OF_MODULE = "derive from LightningModule, which has them"
_HOOKS_OF_BOTH = "derive from LightningModule or LightningDataModule, which have them"
_OPTIONS = "a strategy here is its options: take DDPStrategy or FSDPStrategy"
_PRECISION = "pass Trainer(precision=...)"
_SINGLE = "pass Trainer(strategy='single_device')"
_LOOPS = (
    "the loops are the Trainer's own: read trainer.fit_loop and trainer.progress, and override "
    "hooks, or take manual optimization for steps of your own"
)
_CONNECTORS = "it is an internal part of Lightning's Trainer: use the Trainer's attributes"
_FABRIC = (
    "there is no Fabric here: train with the Trainer, in manual optimization where you write "
    "the step yourself"
)
_MADE = "the command line makes objects of classes by itself; elsewhere call the class"
_TORCHMETRICS = "its classes are those of the package torchmetrics: import torchmetrics"
_PREDICTION = "pass the loaders to trainer.predict, which divides them among the processes"
_ENUMS = "write the text that the Trainer's option takes"
_COLUMNS = "override configure_columns of RichProgressBar, which returns columns of rich.progress"
_COLLECTIVES = "use torch.distributed, or trainer.strategy.broadcast, reduce and all_gather"
_COPY = "it is a demonstration: copy it from Lightning's sources into your own"
_DEVICES = "pass Trainer(devices=...), and read trainer.num_devices or trainer.device_ids"
_CHECKPOINT_TOOL = "older checkpoints are read as they are; see trainer-hooks checkpoint --help"

NOT_OFFERED: tuple[tuple[str, str, str], ...] = (
    # modules of Lightning, the names (* for all others), the advice
    (".", "Fabric", _FABRIC),
    ("lite", "*", _FABRIC),
    (".", "LightningLite", _FABRIC),
    (
        ".",
        "LightningApp LightningFlow LightningWork",
        "it is no part of the training: use the package lightning-sdk",
    ),
    ("app", "*", "it is no part of the training: use the package lightning-sdk"),
    ("data", "*", "it is the package litdata: import litdata"),
    ("store", "*", "use the package litmodels"),
    ("metrics metrics.functional utilities.metrics", "*", _TORCHMETRICS),
    ("core.step_result", "*", "call self.log in the steps"),
    ("accelerators", "GPUAccelerator", "pass Trainer(accelerator='cuda')"),
    (
        "accelerators fabric.accelerators.cuda fabric.accelerators",
        "find_usable_cuda_devices",
        "pass Trainer(devices=2), or a list of device numbers",
    ),
    (
        "accelerators.cpu accelerators.cuda accelerators.mps",
        "get_cpu_stats get_device_stats get_nvidia_gpu_stats",
        "pass the callback DeviceStatsMonitor()",
    ),
    ("accelerators.registry", "*", "pass Trainer(accelerator='cpu'), 'cuda' or 'mps'"),
    ("callbacks callbacks.gpu_stats_monitor", "GPUStatsMonitor", "take DeviceStatsMonitor"),
    ("callbacks callbacks.xla_stats_monitor", "XLAStatsMonitor", _NO_TPU),
    ("callbacks callbacks.lr_logger", "LearningRateLogger", "take LearningRateMonitor"),
    ("callbacks.progress.tqdm_progress", "convert_inf", "use math.isinf"),
    (
        "callbacks.progress.progress_bar callbacks.progress.base",
        "get_standard_metrics",
        "override get_metrics of the progress bar",
    ),
    (
        "callbacks.progress.rich_progress",
        (
            "BatchesProcessedColumn CustomBarColumn CustomInfiniteTask CustomProgress "
            "CustomTimeColumn MetricsTextColumn ProcessingSpeedColumn"
        ),
        _COLUMNS,
    ),
    ("cli utilities.cli", "instantiate_class instantiate_module", _MADE),
    ("cli utilities.cli", "ModuleType", "it is a type variable: write typing.TypeVar('T')"),
    (
        "cli utilities.cli",
        (
            "CALLBACK_REGISTRY DATAMODULE_REGISTRY LR_SCHEDULER_REGISTRY MODEL_REGISTRY "
            "OPTIMIZER_REGISTRY"
        ),
        "classes are found by their names once they are imported",
    ),
    ("core.hooks", "CheckpointHooks DataHooks", _HOOKS_OF_BOTH),
    ("core.hooks", "ModelHooks", _HOOKS_OF_MODULE),
    ("core.decorators core.grads core.memory core.root_module", "*", _HOOKS_OF_MODULE),
    ("core.optimizer", "do_nothing_closure", "call step() without a closure"),
    (
        "core.saving",
        "CHECKPOINT_PAST_HPARAMS_KEYS ModelIO",
        "load_from_checkpoint reads older checkpoints as they are",
    ),
    ("demos demos.lstm", "LightningLSTM SequenceSampler SimpleLSTM", _COPY),
    ("demos demos.transformer", "LightningTransformer Transformer WikiText2", _COPY),
    ("demos.transformer", "Dictionary PositionalEncoding tokenize", _COPY),
    ("demos.mnist_datamodule", "MNIST MNISTDataModule", "take torchvision.datasets.MNIST"),
    ("loggers", "LitLogger", "its service is not offered here: take another logger"),
    ("loggers loggers.neptune", "NeptuneLogger", "its service has closed: take another logger"),
    ("loggers.litlogger", "*", "its service is not offered here: take another logger"),
    ("loggers loggers.test_tube", "TestTubeLogger", "take TensorBoardLogger"),
    ("loggers loggers.base", "LoggerCollection", "pass Trainer(logger=[...])"),
    ("loggers.base loggers.logger", "merge_dicts", "merge them where they are logged"),
    (
        "loggers.base loggers.logger",
        "DummyLoggerCollection",
        "take the experiment of a DummyLogger",
    ),
    ("loggers.comet", "FRAMEWORK_NAME", "write the name that Comet is to show"),
    ("loggers.mlflow", "LOCAL_FILE_URI_PREFIX", "write 'file:'"),
    ("loggers.utilities", "*", "override after_save_checkpoint(callback) of the logger"),
    (
        (
            "loops loops.base loops.batch loops.dataloader loops.epoch loops.evaluation_loop "
            "loops.fetchers loops.fit_loop loops.loop loops.optimization "
            "loops.optimization.automatic "
            "loops.optimization.closure loops.optimization.manual loops.prediction_loop "
            "loops.progress "
            "loops.training_epoch_loop loops.utilities trainer.progress trainer.training_loop "
            "trainer.evaluation_loop utilities.fetching"
        ),
        "*",
        _LOOPS,
    ),
    (
        (
            "overrides overrides.base overrides.data_parallel overrides.distributed "
            "overrides.fairscale"
        ),
        "*",
        _PREDICTION,
    ),
    ("plugins plugins.io plugins.io.async_plugin", "AsyncCheckpointIO", _SAVING),
    (
        (
            "plugins plugins.io plugins.io.checkpoint_plugin fabric.plugins fabric.plugins.io "
            "fabric.plugins.io.checkpoint_io"
        ),
        "CheckpointIO",
        _SAVING,
    ),
    (
        (
            "plugins plugins.io plugins.io.torch_plugin fabric.plugins fabric.plugins.io "
            "fabric.plugins.io.torch_io"
        ),
        "TorchCheckpointIO",
        _SAVING,
    ),
    (
        (
            "plugins plugins.io plugins.io.xla_plugin fabric.plugins fabric.plugins.io "
            "fabric.plugins.io.xla"
        ),
        "XLACheckpointIO",
        _NO_TPU,
    ),
    (
        "plugins.io.hpu_plugin plugins.precision.hpu strategies.hpu_parallel strategies.single_hpu",
        "*",
        _NO_HPU,
    ),
    ("plugins.io.wrapper", "*", _SAVING),
    ("plugins plugins.layer_sync", "LayerSync TorchSyncBatchNorm", _SYNC),
    (
        (
            "plugins plugins.precision plugins.precision.bitsandbytes fabric.plugins "
            "fabric.plugins.precision fabric.plugins.precision.bitsandbytes"
        ),
        "BitsandbytesPrecision",
        "quantize layers in configure_model",
    ),
    (
        (
            "plugins plugins.precision plugins.precision.deepspeed fabric.plugins "
            "fabric.plugins.precision fabric.plugins.precision.deepspeed"
        ),
        "DeepSpeedPrecision",
        _PRECISION,
    ),
    (
        (
            "plugins plugins.precision plugins.precision.double fabric.plugins "
            "fabric.plugins.precision fabric.plugins.precision.double"
        ),
        "DoublePrecision",
        "pass Trainer(precision='64-true')",
    ),
    (
        "plugins.precision.double",
        "LightningDoublePrecisionModule",
        "pass Trainer(precision='64-true')",
    ),
    (
        (
            "plugins plugins.precision plugins.precision.fsdp fabric.plugins "
            "fabric.plugins.precision fabric.plugins.precision.fsdp"
        ),
        "FSDPPrecision",
        "pass Trainer(precision=...), or FSDPStrategy(mixed_precision=...)",
    ),
    (
        (
            "plugins plugins.precision plugins.precision.half fabric.plugins "
            "fabric.plugins.precision fabric.plugins.precision.half"
        ),
        "HalfPrecision",
        "pass Trainer(precision='bf16-true') or '16-true'",
    ),
    (
        (
            "plugins plugins.precision plugins.precision.amp plugins.precision.native_amp "
            "fabric.plugins fabric.plugins.precision fabric.plugins.precision.amp"
        ),
        "MixedPrecision",
        "pass Trainer(precision='bf16-mixed') or '16-mixed'",
    ),
    (
        (
            "plugins plugins.precision plugins.precision.precision fabric.plugins "
            "fabric.plugins.precision fabric.plugins.precision.precision"
        ),
        "Precision",
        _PRECISION,
    ),
    (
        (
            "plugins plugins.precision plugins.precision.transformer_engine fabric.plugins "
            "fabric.plugins.precision fabric.plugins.precision.transformer_engine"
        ),
        "TransformerEnginePrecision",
        "replace layers in configure_model",
    ),
    (
        (
            "plugins plugins.precision plugins.precision.xla fabric.plugins "
            "fabric.plugins.precision fabric.plugins.precision.xla"
        ),
        "XLAPrecision",
        _NO_TPU,
    ),
    (
        "plugins plugins.precision plugins.precision.native_amp plugins.precision.precision_plugin",
        (
            "ApexMixedPrecisionPlugin DoublePrecisionPlugin FSDPMixedPrecisionPlugin "
            "FullyShardedNativeMixedPrecisionPlugin MixedPrecisionPlugin "
            "NativeMixedPrecisionPlugin PrecisionPlugin ShardedNativeMixedPrecisionPlugin"
        ),
        _PRECISION,
    ),
    (
        "plugins plugins.training_type plugins.training_type.ddp plugins.training_type.rpc",
        (
            "DDP2Plugin DDPPlugin DDPShardedPlugin DDPSpawnPlugin DataParallelPlugin "
            "DeepSpeedPlugin "
            "ParallelPlugin SingleDevicePlugin TrainingTypePlugin"
        ),
        "pass Trainer(strategy='ddp'), or a DDPStrategy or FSDPStrategy",
    ),
    (
        (
            "plugins.environments plugins.environments.cluster_environment fabric.plugins "
            "fabric.plugins.environments fabric.plugins.environments.cluster_environment"
        ),
        "ClusterEnvironment",
        _DETECTED,
    ),
    (
        (
            "plugins.environments plugins.environments.kubeflow_environment "
            "fabric.plugins.environments fabric.plugins.environments.kubeflow"
        ),
        "KubeflowEnvironment",
        _TORCHRUN,
    ),
    (
        (
            "plugins.environments plugins.environments.lsf_environment "
            "fabric.plugins.environments fabric.plugins.environments.lsf"
        ),
        "LSFEnvironment",
        _TORCHRUN,
    ),
    (
        (
            "plugins.environments plugins.environments.lightning_environment "
            "fabric.plugins.environments fabric.plugins.environments.lightning"
        ),
        "LightningEnvironment",
        "pass Trainer(devices=2)",
    ),
    (
        "plugins.environments.lightning_environment fabric.plugins.environments.lightning",
        "find_free_network_port",
        "torch.distributed finds one for port 0",
    ),
    (
        "plugins.environments fabric.plugins.environments fabric.plugins.environments.mpi",
        "MPIEnvironment",
        _TORCHRUN,
    ),
    (
        (
            "plugins.environments plugins.environments.slurm_environment "
            "fabric.plugins.environments fabric.plugins.environments.slurm"
        ),
        "SLURMEnvironment",
        _DETECTED,
    ),
    (
        (
            "plugins.environments plugins.environments.torchelastic_environment "
            "fabric.plugins.environments fabric.plugins.environments.torchelastic"
        ),
        "TorchElasticEnvironment",
        _DETECTED,
    ),
    (
        "plugins.environments fabric.plugins.environments fabric.plugins.environments.xla",
        "XLAEnvironment",
        _NO_TPU,
    ),
    (
        "profilers profiler profilers.xla profiler.xla",
        "XLAProfiler",
        "there are no TPUs here: take PyTorchProfiler",
    ),
    ("profiler.profilers", "*", "import it from profilers"),
    (
        "profilers.pytorch profiler.pytorch",
        "RegisterRecordFunction ScheduleWrapper",
        "pass the arguments of torch.profiler.profile to PyTorchProfiler",
    ),
    (
        "serve serve.servable_module serve.servable_module_validator",
        "*",
        "export the module with to_onnx or to_torchscript, and serve the file",
    ),
    (
        "strategies strategies.deepspeed fabric.strategies fabric.strategies.deepspeed",
        "DeepSpeedStrategy",
        "take FSDPStrategy, which shards all that DeepSpeed does",
    ),
    ("strategies.deepspeed", "remove_module_hooks", "there is no DeepSpeed here"),
    (
        "strategies strategies.model_parallel fabric.strategies fabric.strategies.model_parallel",
        "ModelParallelStrategy",
        "take FSDPStrategy(tensor_parallel_size=...)",
    ),
    (
        "strategies strategies.ddp_spawn",
        "DDPSpawnStrategy DDPSpawnShardedStrategy",
        "pass Trainer(strategy='ddp'), or 'ddp_notebook' in a notebook",
    ),
    (
        "strategies strategies.dp strategies.ddp2",
        (
            "DDP2Strategy DataParallelStrategy DDPShardedStrategy BaguaStrategy HorovodStrategy "
            "HivemindStrategy CollaborativeStrategy"
        ),
        "pass Trainer(strategy='ddp')",
    ),
    (
        "strategies strategies.fully_sharded strategies.fully_sharded_native",
        "DDPFullyShardedNativeStrategy DDPFullyShardedStrategy",
        "take FSDPStrategy",
    ),
    (
        (
            "strategies strategies.xla strategies.single_xla strategies.tpu_spawn "
            "strategies.single_tpu fabric.strategies.single_xla fabric.strategies.xla "
            "fabric.strategies.xla_fsdp"
        ),
        "SingleDeviceXLAStrategy SingleTPUStrategy TPUSpawnStrategy XLAFSDPStrategy XLAStrategy",
        _NO_TPU,
    ),
    ("strategies", "HPUParallelStrategy SingleHPUStrategy", _NO_HPU),
    ("strategies", "StrategyRegistry", "pass Trainer(strategy='ddp') or 'fsdp'"),
    (
        (
            "strategies.launchers strategies.launchers.launcher "
            "strategies.launchers.multiprocessing "
            "strategies.launchers.subprocess_script strategies.launchers.xla"
        ),
        "*",
        "the Trainer starts its processes itself; from outside start them with torchrun",
    ),
    (
        "strategies.strategy",
        "TBroadcast TReduce",
        "it is a type variable: write typing.TypeVar('T')",
    ),
    (
        (
            "trainer.call trainer.configuration_validator trainer.setup trainer.connectors "
            "trainer.connectors.accelerator_connector trainer.connectors.callback_connector "
            "trainer.connectors.checkpoint_connector trainer.connectors.data_connector "
            "trainer.connectors.logger_connector trainer.connectors.logger_connector.fx_validator "
            "trainer.connectors.logger_connector.logger_connector "
            "trainer.connectors.logger_connector.result trainer.connectors.signal_connector "
            "trainer.data_loading trainer.optimizers"
        ),
        "*",
        _CONNECTORS,
    ),
    ("trainer.supporters", "*", "use CombinedLoader"),
    ("tuner.auto_gpu_select", "*", "pass Trainer(devices=2), or a list of device numbers"),
    ("tuner.batch_size_scaling", "*", "call Tuner(trainer).scale_batch_size(module)"),
    ("tuner.lr_finder", "*", "call Tuner(trainer).lr_find(module)"),
    (
        "utilities fabric.utilities fabric.utilities.distributed",
        "is_shared_filesystem",
        "all processes of a machine know the same paths; pass paths that all machines share",
    ),
    (
        "utilities utilities.enums",
        (
            "AMPType AcceleratorType DeviceType DistributedType ModelSummaryMode PrecisionType "
            "AutoRestartBatchKeys"
        ),
        _ENUMS,
    ),
    ("utilities", "FLOAT16_EPSILON FLOAT32_EPSILON FLOAT64_EPSILON", "use torch.finfo(dtype).eps"),
    (
        "utilities.argparse utilities.argparse_utils",
        "*",
        "use LightningCLI, or name the Trainer's options in your parser",
    ),
    (
        (
            "utilities.auto_restart utilities.upgrade_checkpoint utilities.migration "
            "utilities.migration.migration utilities.migration.utils"
        ),
        "*",
        _CHECKPOINT_TOOL,
    ),
    (
        "utilities.cloud_io fabric.utilities.cloud_io",
        "load _load",
        "use torch.load(path, weights_only=True)",
    ),
    (
        "utilities.cloud_io fabric.utilities.cloud_io",
        "atomic_save _atomic_save",
        "call trainer.save_checkpoint(path), which is atomic",
    ),
    (
        "utilities.compile",
        "from_compiled to_uncompiled",
        "the module behind torch.compile is its attribute _orig_mod",
    ),
    (
        "utilities.consolidate_checkpoint fabric.utilities.consolidate_checkpoint",
        "*",
        "use `trainer-hooks checkpoint export`",
    ),
    ("utilities.data", "has_len_all_ranks", "use len(loader)"),
    (
        "fabric.utilities.data",
        "has_iterable_dataset",
        "use isinstance(loader.dataset, torch.utils.data.IterableDataset)",
    ),
    ("fabric.utilities.data utilities.data", "has_len", "use len(loader)"),
    (
        "utilities.deepspeed",
        "convert_zero_checkpoint_to_fp32_state_dict",
        "use `trainer-hooks checkpoint export`",
    ),
    ("utilities.deepspeed", "CPU_DEVICE", "write torch.device('cpu')"),
    ("utilities.deepspeed", "ds_checkpoint_dir", "there is no DeepSpeed here"),
    ("utilities.device_parser fabric.utilities.device_parser", "*", _DEVICES),
    ("utilities.distributed fabric.utilities.distributed", "*", _COLLECTIVES),
    (
        "fabric.utilities.distributed",
        "DistributedSamplerWrapper",
        "pass the loader as it is: its sampler is divided among the processes",
    ),
    (
        "utilities.finite_checks",
        "*",
        "pass Trainer(detect_anomaly=True), or the callback NaNGuard() of trainer_hooks",
    ),
    ("utilities.hpu_utilities", "*", _NO_HPU),
    ("utilities.xla_device", "*", _NO_TPU),
    (
        "utilities.imports fabric.utilities.imports",
        "*",
        "compare importlib.metadata.version(...), or use importlib.util.find_spec",
    ),
    (
        "utilities.logger fabric.utilities.logger",
        "*",
        "convert the hyperparameters in the logger's log_hyperparams",
    ),
    ("utilities.memory", "is_cuda_out_of_memory is_cudnn_snafu is_out_of_cpu_memory", _OOM),
    (
        "utilities.memory core.memory",
        "get_gpu_memory_map get_memory_profile get_model_size_mb",
        "pass the callback DeviceStatsMonitor()",
    ),
    ("utilities.meta", "*", "make the layers in configure_model"),
    ("utilities.model_registry", "*", "pass a path to ckpt_path"),
    (
        "utilities.model_summary utilities.model_summary.model_summary_deepspeed",
        "DeepSpeedLayerSummary DeepSpeedSummary NOT_APPLICABLE deepspeed_param_size",
        "summarize(module) counts whole parameters",
    ),
    (
        "utilities.model_summary utilities.model_summary.model_summary core.memory",
        (
            "LEFTOVER_PARAMS_NAME NOT_APPLICABLE PARAMETER_NUM_UNITS UNKNOWN_SIZE "
            "get_formatted_model_size parse_batch_shape"
        ),
        _SUMMARY,
    ),
    (
        "utilities.optimizer fabric.utilities.optimizer",
        "*",
        "the Trainer moves the states of its optimizers",
    ),
    (
        "utilities.parsing",
        "clean_namespace collect_init_args save_hyperparameters",
        _HPARAMS,
    ),
    ("utilities.parsing", "lightning_getattr", "read the attribute"),
    ("utilities.parsing", "lightning_hasattr", "use hasattr"),
    ("utilities.parsing", "lightning_setattr", "set the attribute"),
    ("utilities.parsing", "parse_class_init_keys", "use inspect.signature"),
    (
        "utilities.rank_zero fabric.utilities.rank_zero utilities.distributed",
        "LightningDeprecationWarning",
        "use FutureWarning",
    ),
    ("utilities.rank_zero fabric.utilities.rank_zero", "_get_rank", "read rank_zero_only.rank"),
    (
        "utilities.seed fabric.utilities.seed",
        "reset_seed",
        "call seed_everything with the seed again",
    ),
    ("utilities.signature_utils", "is_param_in_hook_signature", "use inspect.signature"),
    ("utilities.testing fabric.utilities.testing", "*", "use pytest.mark.skipif"),
    (
        (
            "fabric.accelerators fabric.accelerators.accelerator fabric.accelerators.cpu "
            "fabric.accelerators.mps fabric.accelerators.registry fabric.accelerators.xla"
        ),
        "*",
        "pass Trainer(accelerator='cpu'), 'cuda' or 'mps'",
    ),
    (
        "fabric.accelerators.cuda",
        "is_cuda_available num_cuda_devices",
        "use torch.cuda.is_available and torch.cuda.device_count",
    ),
    ("fabric.accelerators.cuda", "*", "pass Trainer(accelerator='cuda')"),
    ("fabric fabric.cli fabric.connector fabric.fabric fabric.wrappers", "*", _FABRIC),
    (
        (
            "fabric.plugins.collectives fabric.plugins.collectives.collective "
            "fabric.plugins.collectives.single_device "
            "fabric.plugins.collectives.torch_collective"
        ),
        "*",
        _COLLECTIVES,
    ),
    ("fabric.plugins.precision.utils", "*", _PRECISION),
    (
        (
            "fabric.strategies fabric.strategies.ddp fabric.strategies.dp "
            "fabric.strategies.fsdp fabric.strategies.parallel fabric.strategies.registry "
            "fabric.strategies.single_device fabric.strategies.strategy"
        ),
        "*",
        "import strategies from lightning.pytorch.strategies, as options of the Trainer",
    ),
    (
        (
            "fabric.strategies.launchers fabric.strategies.launchers.launcher "
            "fabric.strategies.launchers.multiprocessing "
            "fabric.strategies.launchers.subprocess_script fabric.strategies.launchers.xla"
        ),
        "*",
        "the Trainer starts its processes itself; from outside start them with torchrun",
    ),
    ("fabric.strategies.model_parallel", "*", "take FSDPStrategy(tensor_parallel_size=...)"),
    (
        "fabric.utilities.apply_func",
        "CONVERSION_DTYPES convert_tensors_to_scalars convert_to_tensors",
        "use apply_to_collection of lightning_utilities",
    ),
    (
        "fabric.utilities.device_dtype_mixin",
        "*",
        "derive from LightningModule, which has device and dtype",
    ),
    ("fabric.utilities.init fabric.utilities.load", "*", "make the layers in configure_model"),
    ("fabric.utilities.registry", "*", "pass the object itself"),
    (
        "fabric.utilities.spike",
        "SpikeDetection",
        "take SpikeDetection of lightning.pytorch.callbacks",
    ),
    (
        "fabric.utilities fabric.utilities.throughput",
        "Throughput ThroughputMonitor",
        "pass the callback ThroughputMonitor of lightning.pytorch.callbacks",
    ),
    (
        "fabric.utilities.throughput",
        "get_available_flops",
        "pass the callback ThroughputMonitor of lightning.pytorch.callbacks",
    ),
)
"""Replacements of Lightning's names that are not offered, by module and name."""
