"""The modules of Lightning's package: a table of their names, and of names not offered.

Code for Lightning imports from many small modules and their packages. They are made from the table
when `trainer_hooks.compat.lightning` is imported; only those with code of their own are files. Type
checkers and editors know them by the stubs beside this file, which docs/lightning_stubs.py writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks._lazy import loader_of, register_module
from trainer_hooks.compat.not_offered import refusing_getattr

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "EXPORTS",
    "NOT_OFFERED",
    "VIRTUAL_MODULES",
    "exports_of",
    "lightning_getattr",
    "register_modules",
]

_PACKAGE = "trainer_hooks.compat.lightning"

_CALLBACKS = "trainer_hooks.callbacks"
_LOGGERS = "trainer_hooks.loggers"
_PROFILERS = "trainer_hooks.profilers"
_RANK_ZERO = "trainer_hooks.runtime.rank_zero"
_RUN_STATE = "trainer_hooks.context.run_state"
_MODEL_TABLE = "trainer_hooks.callbacks.model_table"
_DEVICE = "trainer_hooks.runtime.device"
_CLASSES = f"{_PACKAGE}.base_classes"
_HELPERS = f"{_PACKAGE}.utilities"

EXPORTS = (
    # module of Lightning, module that defines the names, the names (Lightning's=ours)
    ("callbacks", _CALLBACKS, "BackboneFinetuning BaseFinetuning BasePredictionWriter"),
    ("callbacks", _CALLBACKS, "BatchSizeFinder Checkpoint DeviceStatsMonitor EMAWeightAveraging"),
    ("callbacks", _CALLBACKS, "EarlyStopping GradientAccumulationScheduler LambdaCallback"),
    ("callbacks", _CALLBACKS, "LearningRateFinder LearningRateMonitor ModelCheckpoint"),
    ("callbacks", _CALLBACKS, "ModelPruning ModelSummary OnExceptionCheckpoint ProgressBar"),
    ("callbacks", _CALLBACKS, "RichModelSummary RichProgressBar SpikeDetection TQDMProgressBar"),
    ("callbacks", _CALLBACKS, "StochasticWeightAveraging ThroughputMonitor Timer WeightAveraging"),
    ("callbacks", _CLASSES, "Callback"),
    ("callbacks.batch_size_finder", _CALLBACKS, "BatchSizeFinder"),
    ("callbacks.callback", _CLASSES, "Callback"),
    ("callbacks.checkpoint", _CALLBACKS, "Checkpoint"),
    ("callbacks.device_stats_monitor", _CALLBACKS, "DeviceStatsMonitor"),
    ("callbacks.early_stopping", _CALLBACKS, "EarlyStopping"),
    ("callbacks.early_stopping", "trainer_hooks.callbacks.early_stopping", "EarlyStoppingReason"),
    ("callbacks.finetuning", _CALLBACKS, "BackboneFinetuning BaseFinetuning"),
    ("callbacks.finetuning", "trainer_hooks.callbacks.finetuning", "multiplicative"),
    ("callbacks.gradient_accumulation_scheduler", _CALLBACKS, "GradientAccumulationScheduler"),
    ("callbacks.lambda_function", _CALLBACKS, "LambdaCallback"),
    ("callbacks.lr_finder", _CALLBACKS, "LearningRateFinder"),
    ("callbacks.lr_monitor", _CALLBACKS, "LearningRateMonitor"),
    ("callbacks.model_checkpoint", _CALLBACKS, "ModelCheckpoint"),
    ("callbacks.model_summary", _CALLBACKS, "ModelSummary"),
    ("callbacks.on_exception_checkpoint", _CALLBACKS, "OnExceptionCheckpoint"),
    ("callbacks.prediction_writer", _CALLBACKS, "BasePredictionWriter WriteInterval"),
    ("callbacks.progress", _CALLBACKS, "ProgressBar RichProgressBar TQDMProgressBar"),
    ("callbacks.progress.progress_bar", _CALLBACKS, "ProgressBar"),
    ("callbacks.progress.rich_progress", _CALLBACKS, "RichProgressBar RichProgressBarTheme"),
    ("callbacks.progress.tqdm_progress", _CALLBACKS, "TQDMProgressBar"),
    ("callbacks.progress.tqdm_progress", "tqdm.auto", "Tqdm=tqdm"),
    ("callbacks.pruning", _CALLBACKS, "ModelPruning"),
    ("callbacks.rich_model_summary", _CALLBACKS, "RichModelSummary"),
    ("callbacks.spike", _CALLBACKS, "SpikeDetection TrainingSpikeException"),
    ("callbacks.stochastic_weight_avg", _CALLBACKS, "StochasticWeightAveraging"),
    ("callbacks.throughput_monitor", _CALLBACKS, "ThroughputMonitor"),
    ("callbacks.timer", _CALLBACKS, "Timer"),
    ("callbacks.weight_averaging", _CALLBACKS, "EMAWeightAveraging WeightAveraging"),
    ("core", _CLASSES, "LightningDataModule LightningModule"),
    ("core.datamodule", _CLASSES, "LightningDataModule"),
    ("core.module", _CLASSES, "LightningModule"),
    ("core.optimizer", "trainer_hooks.module.optimization", "LightningOptimizer=ManualOptimizer"),
    ("loggers", _LOGGERS, "CSVLogger CometLogger Logger MLFlowLogger NeptuneLogger"),
    ("loggers", _LOGGERS, "TensorBoardLogger WandbLogger"),
    ("loggers.comet", _LOGGERS, "CometLogger"),
    ("loggers.csv_logs", _LOGGERS, "CSVLogger"),
    ("loggers.logger", _LOGGERS, "DummyLogger Logger"),
    ("loggers.logger", _HELPERS, "rank_zero_experiment"),
    ("loggers.mlflow", _LOGGERS, "MLFlowLogger"),
    ("loggers.neptune", _LOGGERS, "NeptuneLogger"),
    ("loggers.tensorboard", _LOGGERS, "TensorBoardLogger"),
    ("loggers.wandb", _LOGGERS, "WandbLogger"),
    ("profilers", _PROFILERS, "AdvancedProfiler PassThroughProfiler Profiler PyTorchProfiler"),
    ("profilers", _PROFILERS, "SimpleProfiler"),
    ("profilers.advanced", _PROFILERS, "AdvancedProfiler"),
    ("profilers.base", _PROFILERS, "PassThroughProfiler"),
    ("profilers.profiler", _PROFILERS, "Profiler"),
    ("profilers.pytorch", _PROFILERS, "PyTorchProfiler"),
    ("profilers.simple", _PROFILERS, "SimpleProfiler"),
    ("strategies", "trainer_hooks", "DDPStrategy FSDPStrategy"),
    ("strategies.ddp", "trainer_hooks", "DDPStrategy"),
    ("strategies.fsdp", "trainer_hooks", "FSDPStrategy"),
    ("trainer", _CLASSES, "Trainer"),
    ("trainer", "trainer_hooks", "seed_everything"),
    ("trainer.states", _RUN_STATE, "RunningStage TrainerFn TrainerState=RunState TrainerStatus"),
    ("trainer.trainer", _CLASSES, "Trainer"),
    ("tuner", "trainer_hooks", "Tuner"),
    ("tuner.tuning", "trainer_hooks", "Tuner"),
    ("utilities.combined_loader", "trainer_hooks.data.loaders", "CombinedLoader"),
    ("utilities.data", "trainer_hooks.data.batch_counts", "extract_batch_size=count_samples"),
    ("utilities.enums", _HELPERS, "GradClipAlgorithmType"),
    ("utilities.exceptions", "trainer_hooks.errors", "MisconfigurationException=TrainerHooksError"),
    ("utilities.exceptions", "trainer_hooks.errors", "SIGTERMException=TerminationSignal"),
    ("utilities.grads", _HELPERS, "grad_norm"),
    ("utilities.memory", _DEVICE, "garbage_collection_cuda=free_memory"),
    ("utilities.memory", _DEVICE, "is_oom_error=is_out_of_memory"),
    ("utilities.memory", _HELPERS, "recursive_detach"),
    ("utilities.model_helpers", _HELPERS, "is_overridden"),
    ("utilities.model_summary", _MODEL_TABLE, "LayerSummary ModelSummary=ModelSummaryTable"),
    ("utilities.model_summary", _MODEL_TABLE, "summarize"),
    ("utilities.parsing", "trainer_hooks.checkpoint.hparams", "AttributeDict=HyperParameters"),
    ("utilities.rank_zero", _RANK_ZERO, "rank_zero_debug rank_zero_deprecation rank_zero_info"),
    ("utilities.rank_zero", _RANK_ZERO, "rank_zero_only rank_zero_warn"),
    ("utilities.seed", "trainer_hooks.runtime.rng", "isolate_rng=isolated"),
    ("utilities.seed", "trainer_hooks", "seed_everything"),
    ("utilities.warnings", "trainer_hooks.errors", "PossibleUserWarning=TrainerHooksWarning"),
)  # fmt: skip
"""The names of the modules that are no files."""

_NO_TPU = "there are no TPUs here"
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

NOT_OFFERED: dict[str, dict[str, str]] = {
    "accelerators": {
        "Accelerator": "pass Trainer(accelerator='cpu'), 'cuda' or 'mps'",
        "CPUAccelerator": "pass Trainer(accelerator='cpu')",
        "CUDAAccelerator": "pass Trainer(accelerator='cuda')",
        "MPSAccelerator": "pass Trainer(accelerator='mps')",
        "XLAAccelerator": _NO_TPU,
        "find_usable_cuda_devices": "pass Trainer(devices=2), or a list of device numbers",
    },
    "callbacks.progress.tqdm_progress": {"convert_inf": "use math.isinf"},
    "core.hooks": {
        "CheckpointHooks": "derive from LightningModule or LightningDataModule, which have them",
        "DataHooks": "derive from LightningModule or LightningDataModule, which have them",
        "ModelHooks": "derive from LightningModule, which has them",
    },
    "core.optimizer": {"do_nothing_closure": "call step() without a closure"},
    "loggers": {"LitLogger": "its service is not offered here: take another logger"},
    "loggers.logger": {"merge_dicts": "merge them where they are logged"},
    "plugins": {
        "AsyncCheckpointIO": _SAVING,
        "BitsandbytesPrecision": "quantize layers in configure_model",
        "CheckpointIO": _SAVING,
        "DeepSpeedPrecision": "pass Trainer(precision=...)",
        "DoublePrecision": "pass Trainer(precision='64-true')",
        "FSDPPrecision": "pass Trainer(precision=...), or FSDPStrategy(mixed_precision=...)",
        "HalfPrecision": "pass Trainer(precision='bf16-true') or '16-true'",
        "LayerSync": _SYNC,
        "MixedPrecision": "pass Trainer(precision='bf16-mixed') or '16-mixed'",
        "Precision": "pass Trainer(precision=...)",
        "TorchCheckpointIO": _SAVING,
        "TorchSyncBatchNorm": _SYNC,
        "TransformerEnginePrecision": "replace layers in configure_model",
        "XLACheckpointIO": _NO_TPU,
        "XLAPrecision": _NO_TPU,
    },
    "plugins.environments": {
        "ClusterEnvironment": _DETECTED,
        "KubeflowEnvironment": _TORCHRUN,
        "LSFEnvironment": _TORCHRUN,
        "LightningEnvironment": "pass Trainer(devices=2)",
        "MPIEnvironment": _TORCHRUN,
        "SLURMEnvironment": _DETECTED,
        "TorchElasticEnvironment": _DETECTED,
        "XLAEnvironment": _NO_TPU,
    },
    "profilers": {"XLAProfiler": "there are no TPUs here: take PyTorchProfiler"},
    "strategies": {
        "DeepSpeedStrategy": "take FSDPStrategy, which shards all that DeepSpeed does",
        "ModelParallelStrategy": "take FSDPStrategy(tensor_parallel_size=...)",
        "ParallelStrategy": "a strategy here is its options: take DDPStrategy or FSDPStrategy",
        "SingleDeviceStrategy": "pass Trainer(strategy='single_device')",
        "Strategy": "a strategy here is its options: take DDPStrategy or FSDPStrategy",
    },
    "utilities": {
        "LightningEnum": "derive from enum.StrEnum",
        "find_shared_parameters": "compare module.named_parameters(remove_duplicate=False) by id",
        "is_shared_filesystem": (
            "all processes of a machine know the same paths; pass paths that all machines share"
        ),
        "set_shared_parameters": "assign the parameter to both attributes",
    },
    "utilities.data": {"has_len_all_ranks": "use len(loader)"},
    "utilities.deepspeed": {
        "convert_zero_checkpoint_to_fp32_state_dict": "use `trainer-hooks checkpoint export`",
        "ds_checkpoint_dir": "there is no DeepSpeed here",
    },
    "utilities.memory": {
        "is_cuda_out_of_memory": _OOM,
        "is_cudnn_snafu": _OOM,
        "is_out_of_cpu_memory": _OOM,
    },
    "utilities.model_helpers": {"get_torchvision_model": "use torchvision.models.get_model"},
    "utilities.model_summary": {
        "DeepSpeedSummary": "summarize(module) counts whole parameters",
        "get_formatted_model_size": _SUMMARY,
        "get_human_readable_count": _SUMMARY,
        "parse_batch_shape": _SUMMARY,
    },
    "utilities.parsing": {
        "clean_namespace": _HPARAMS,
        "collect_init_args": _HPARAMS,
        "get_init_args": _HPARAMS,
        "is_picklable": "import it from trainer_hooks.compat.lightning.utilities",
        "lightning_getattr": "read the attribute",
        "lightning_hasattr": "use hasattr",
        "lightning_setattr": "set the attribute",
        "parse_class_init_keys": "use inspect.signature",
        "save_hyperparameters": _HPARAMS,
    },
}
"""Replacements of Lightning's names that are not offered, by module and name."""

# each has some of these names there, and to refuse the others too does no harm
NOT_OFFERED["plugins.io"] = NOT_OFFERED["plugins.precision"] = NOT_OFFERED["plugins"]

# utilities is a file
VIRTUAL_MODULES = sorted(({path for path, _, _ in EXPORTS} | NOT_OFFERED.keys()) - {"utilities"})
"""The paths of the modules that are no files, below Lightning's package."""


def exports_of(path: str) -> dict[str, tuple[str, str]]:
    """Return the names of a module of the table, each with the module and name that define it.

    Args:
        path: the module's path below Lightning's package, as `callbacks.timer`.
    """
    exports = {}
    for module, source, names in EXPORTS:
        if module == path:
            for name in names.split():
                ours, _, attribute = name.partition("=")
                exports[ours] = (source, attribute or ours)
    return exports


def lightning_getattr(module: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module of this package.

    It loads the module's own names and its submodules, and refuses the names that are not offered.

    Args:
        module: the module's `__name__`.
        homes: the module that defines each name, as for `loader_of`.
    """
    path = module.removeprefix(f"{_PACKAGE}.")
    # Python sets a submodule on its package only when it loads a file, so `import a.b.c` alone
    # would leave `a.b.c` an AttributeError
    parents = [name.rpartition(".") for name in VIRTUAL_MODULES]
    submodules = {name: "" for parent, _, name in parents if parent == path}
    refused = NOT_OFFERED.get(path, {})
    return refusing_getattr(module, refused, loader_of(module, {**submodules, **homes}))


def register_modules() -> None:
    """Make the modules of the table importable; their names are loaded when they are used."""
    packages = {path.rpartition(".")[0] for path in VIRTUAL_MODULES}
    for path in VIRTUAL_MODULES:
        name, exports = f"{_PACKAGE}.{path}", exports_of(path)
        homes = {ours: f":{source}:{attribute}" for ours, (source, attribute) in exports.items()}
        register_module(
            name,
            f"Names of `lightning.pytorch.{path}`.",
            sorted(exports),
            lightning_getattr(name, homes),
            # Python imports a submodule only of a module that has a __path__
            is_package=path in packages,
        )
