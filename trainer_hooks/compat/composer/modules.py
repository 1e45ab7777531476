"""The modules of Composer's package: a table of those that are no files here.

Code for Composer imports from its many small modules. Those with code of their own are files; the
others are made from the table when `trainer_hooks.compat.composer` is imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks._lazy import stub_homes
from trainer_hooks.compat.composer.not_offered import ALGORITHMS, LOGGERS, PACKAGE
from trainer_hooks.compat.virtual_modules import ModuleTable

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["MODULES", "attach_stub", "package_getattr"]

_PACKAGE = "trainer_hooks.compat.composer"
_CALLBACKS = f"{_PACKAGE}.callbacks"
_TRACKERS = f"{_PACKAGE}.loggers.experiment_trackers"
_DESTINATIONS = f"{_PACKAGE}.loggers.logger_destination"
_METRICS = f"{_PACKAGE}.metrics"
_MODELS = f"{_PACKAGE}.models.base"
_HELPERS = f"{_PACKAGE}.utils.helpers"
_SHARED_CALLBACKS = (
    "export_for_inference.ExportForInferenceCallback",
    "free_outputs.FreeOutputs",
    "generate.Generate",
    "image_visualizer.ImageVisualizer",
    "load_checkpoint.LoadCheckpoint",
    "memory_snapshot.MemorySnapshot",
    "mlperf.MLPerfCallback",
    "oom_observer.OOMObserver",
    "runtime_estimator.RuntimeEstimator",
)
_ALGORITHMS = [
    "alibi",
    "augmix",
    "blurpool",
    "channels_last",
    "colout",
    "cutmix",
    "cutout",
    "ema",
    "factorize",
    "gated_linear_units",
    "ghost_batchnorm",
    "gradient_clipping",
    "gyro_dropout",
    "label_smoothing",
    "layer_freezing",
    "low_precision_groupnorm",
    "low_precision_layernorm",
    "mixup",
    "no_op_model",
    "progressive_resizing",
    "randaugment",
    "sam",
    "selective_backprop",
    "seq_length_warmup",
    "squeeze_excite",
    "stochastic_depth",
    "swa",
    "weight_standardization",
]

_NO_ALGORITHMS = (
    "algorithms algorithms.blurpool.blurpool_layers algorithms.factorize.factorize_core "
    "algorithms.factorize.factorize_modules algorithms.stochastic_depth.stochastic_layers "
    "algorithms.gated_linear_units.gated_linear_unit_layers algorithms.utils "
    "algorithms.utils.augmentation_common algorithms.utils.augmentation_primitives "
    "algorithms.alibi.attention_surgery_functions algorithms.warnings core.passes functional "
    "algorithms.alibi.attention_surgery_functions.utils"
)

_EXPORTS = (
    # modules of Composer, module that defines the names, the names
    *((f"callbacks.{path}", _CALLBACKS, name)
      for path, name in (row.split(".") for row in _SHARED_CALLBACKS)),
    ("devices", f"{_PACKAGE}.core.state", "Device"),
    ("devices.device", f"{_PACKAGE}.core.state", "Device"),
    ("loggers.cometml_logger", _TRACKERS, "CometMLLogger"),
    ("loggers.console_logger", _DESTINATIONS, "ConsoleLogger"),
    ("loggers.file_logger", _DESTINATIONS, "FileLogger"),
    ("loggers.in_memory_logger", _DESTINATIONS, "InMemoryLogger"),
    ("loggers.logger", _DESTINATIONS, "LoggerDestination"),
    ("loggers.mlflow_logger", _TRACKERS, "MLFlowLogger"),
    ("loggers.tensorboard_logger", _TRACKERS, "TensorboardLogger"),
    ("loggers.wandb_logger", _TRACKERS, "WandBLogger"),
    ("metrics.metrics", _METRICS, "CrossEntropy LossMetric"),
    ("models.tasks models.tasks.classification", _MODELS, "ComposerClassifier"),
    ("trainer.trainer", f"{_PACKAGE}.trainer", "Trainer"),
    ("utils utils.batch_helpers", _HELPERS, "batch_get batch_set"),
    ("utils utils.file_helpers", _HELPERS, "format_name_with_dist parse_uri"),
    ("utils utils.inference", "trainer_hooks.callbacks", "export_for_inference"),
    ("utils utils.iter_helpers", _HELPERS, "ensure_tuple map_collection"),
    ("utils utils.misc", _HELPERS, "get_free_tcp_port is_notebook model_eval_mode"),
    ("utils utils.device", f"{_PACKAGE}.core.state", "get_device"),
    ("utils utils.string_enum", f"{_PACKAGE}.core.event", "StringEnum"),
)  # fmt: skip

_SHARDED = "train with trainer_hooks.Trainer(strategy='fsdp')"
_STORE = "give an address such as 's3://bucket/run' where a path is taken"
_SAVE = "call trainer.save_checkpoint(path), and pass Trainer(load_path=...)"
_DEVICE = "pass Trainer(device='cpu'), 'gpu' or 'mps'"
_LOSS = "use the functions of torch.nn.functional"
_METRIC = "take the metric of torchmetrics"
_SURGERY = "replace the modules with setattr, before the trainer is made"
_PROFILER = "pass trainer_hooks.callbacks.Profiler(...) in callbacks"
_REFUSED = (
    # modules of Composer, the names (* for all others), the advice
    *(
        (module, name, advice)
        for module, names in (
            (
                ".",
                "Algorithm HuggingFaceModel algorithms functional profiler",
            ),
            (
                "core",
                "Algorithm AlgorithmPass JSON MemoryFormat Trace get_precision_context",
            ),
            ("core.algorithm", "Algorithm"),
            ("core.engine", "Trace Traces"),
            ("core.precision", "get_precision_context"),
            ("core.types", "JSON MemoryFormat"),
            (
                "models",
                (
                    "HuggingFaceModel Initializer "
                    "write_huggingface_pretrained_from_composer_checkpoint"
                ),
            ),
            ("models.huggingface", "HuggingFaceModel"),
            ("models.initializers", "Initializer"),
        )
        for name in names.split()
        for advice in [PACKAGE[{"Traces": "Trace"}.get(name, name)]]
    ),
    *(("loggers", name, advice) for name, advice in LOGGERS.items()),
    (
        " ".join(
            [_NO_ALGORITHMS]
            + [f"algorithms.{name}" for name in _ALGORITHMS]
            + [f"algorithms.{name}.{name}" for name in _ALGORITHMS]
        ),
        "*",
        ALGORITHMS,
    ),
    (
        (
            "profiler profiler.json_trace_handler profiler.json_trace_merger profiler.marker "
            "profiler.profiler profiler.profiler_action profiler.profiler_schedule "
            "profiler.system_profiler profiler.torch_profiler profiler.trace_handler profiler.utils"
        ),
        "*",
        _PROFILER,
    ),
    ("callbacks callbacks.health_checker", "HealthChecker", "pass SystemMetricsMonitor"),
    ("callbacks.mlperf", "get_system_description", "pass MLPerfCallback, which writes it"),
    (
        (
            "checkpoint checkpoint.download checkpoint.load checkpoint.save checkpoint.state_dict "
            "checkpoint.upload utils.checkpoint"
        ),
        "*",
        _SAVE,
    ),
    ("cli cli.launcher", "*", "start the processes with torchrun"),
    (
        "datasets datasets.ade20k datasets.c4 datasets.cifar datasets.imagenet datasets.mnist",
        "*",
        "write the data set in plain torch",
    ),
    (
        (
            "devices devices.device_cpu devices.device_gpu devices.device_hpu devices.device_mps "
            "devices.device_neuron devices.device_tpu"
        ),
        "DeviceCPU DeviceGPU DeviceHPU DeviceMPS DeviceNeuron DeviceTPU",
        _DEVICE,
    ),
    ("devices.device", "T_nnModule", "it is a type variable: write typing.TypeVar('T')"),
    (
        (
            "distributed distributed.activation_checkpointing distributed.dist_strategy "
            "distributed.fsdp2 distributed.fsdp2_utils distributed.meta_safe_apply "
            "distributed.mosaic_parallelism distributed.param_init distributed.prepare_distributed "
            "distributed.shared_utils utils.parallelism"
        ),
        "*",
        _SHARDED,
    ),
    ("loggers.mosaicml_logger", "*", LOGGERS["MosaicMLLogger"]),
    ("loggers.neptune_logger", "*", LOGGERS["NeptuneLogger"]),
    ("loggers.progress_bar_logger", "*", LOGGERS["ProgressBarLogger"]),
    ("loggers.remote_uploader_downloader", "*", LOGGERS["RemoteUploaderDownloader"]),
    ("loggers.slack_logger", "*", LOGGERS["SlackLogger"]),
    ("loss loss.loss loss.utils", "*", _LOSS),
    ("metrics metrics.nlp", "BinaryF1Score", "take torchmetrics.classification.BinaryF1Score"),
    (
        "metrics metrics.nlp",
        "LanguageCrossEntropy LanguagePerplexity MaskedAccuracy",
        "take torchmetrics.text.Perplexity, or derive from LossMetric",
    ),
    ("metrics metrics.map metrics.metrics", "Dice MAP MIoU", _METRIC),
    ("models.huggingface", "*", PACKAGE["HuggingFaceModel"]),
    (
        (
            "models.bert models.deeplabv3 models.efficientnetb0 models.gpt2 models.resnet "
            "models.resnet_cifar models.timm models.unet models.vit_small_patch16"
        ),
        "*",
        "wrap the model in a ComposerClassifier or a ComposerModel",
    ),
    (
        (
            "utils utils.object_store utils.object_store.gcs_object_store "
            "utils.object_store.libcloud_object_store utils.object_store.mlflow_object_store "
            "utils.object_store.object_store utils.object_store.oci_object_store "
            "utils.object_store.s3_object_store utils.object_store.sftp_object_store "
            "utils.object_store.uc_object_store utils.object_store.utils"
        ),
        (
            "GCSObjectStore LibcloudObjectStore MLFLOW_EXPERIMENT_ID_FORMAT_KEY "
            "MLFLOW_RUN_ID_FORMAT_KEY MLFlowObjectStore OCIObjectStore ObjectStore "
            "ObjectStoreTransientError S3ObjectStore SFTPObjectStore UCObjectStore "
            "build_remote_backend"
        ),
        _STORE,
    ),
    (
        "utils utils.file_helpers",
        (
            "FORMAT_NAME_WITH_DIST_AND_TIME_TABLE FORMAT_NAME_WITH_DIST_TABLE "
            "format_name_with_dist_and_time"
        ),
        "CheckpointSaver fills in the placeholders of its names",
    ),
    (
        "utils utils.file_helpers utils.remote_uploader utils.compression",
        (
            "CliCompressor KNOWN_COMPRESSORS RemoteFilesExistingCheckStatus RemoteUploader "
            "create_symlink_file ensure_folder_has_no_conflicting_files ensure_folder_is_empty "
            "extract_path_from_symlink get_compressor get_file is_compressed_pt is_tar "
            "maybe_create_object_store_from_uri maybe_create_remote_uploader_downloader_from_uri "
            "validate_credentials"
        ),
        _STORE,
    ),
    ("utils", "FSDP2Config FSDPConfig ParallelismConfig ParallelismType TPConfig", _SHARDED),
    ("utils utils.misc", "is_model_fsdp", _SHARDED),
    ("utils", "PartialFilePath get_save_filename load_checkpoint save_checkpoint", _SAVE),
    ("utils utils.misc", "STR_TO_DTYPE", "use getattr(torch, name)"),
    ("utils utils.misc", "partial_format", "use str.format"),
    ("utils utils.misc", "add_vision_dataset_transform", "set the transform of the data set"),
    (
        "utils utils.misc",
        "create_interval_scheduler",
        "use trainer_hooks.every('10ba')",
    ),
    ("utils.misc", "warning_on_one_line", "use the module warnings"),
    (
        "utils utils.collect_env",
        "configure_excepthook disable_env_report enable_env_report get_composer_env_dict print_env",
        "call torch.utils.collect_env.main()",
    ),
    (
        "utils utils.auto_log_hparams",
        "convert_flat_dict_to_nested_dict convert_nested_dict_to_flat_dict extract_hparams",
        "pass Trainer(auto_log_hparams=True)",
    ),
    ("utils utils.import_helpers", "MissingConditionalImportError", "catch ImportError"),
    ("utils utils.import_helpers", "import_object", "use pkgutil.resolve_name"),
    (
        "utils utils.inference",
        "ExportFormat Transform export_with_logger quantize_dynamic",
        "pass an ExportForInferenceCallback in callbacks",
    ),
    ("utils utils.iter_helpers", "IteratorFileStream iterate_with_callback", "use io.BytesIO"),
    ("utils utils.device", "is_hpu_installed is_xla_installed", "there are no such devices here"),
    ("utils utils.retrying", "retry", "use a package such as tenacity"),
    ("utils", "safe_torch_load", "use torch.load(path, weights_only=True)"),
    ("utils utils.warnings", "VersionedDeprecationWarning", "use FutureWarning"),
    ("utils.fx_utils utils.module_surgery", "*", _SURGERY),
)
_FILES = [
    "callbacks",
    "callbacks.checkpoint_saver",
    "callbacks.early_stopper",
    "callbacks.lr_monitor",
    "callbacks.memory_monitor",
    "callbacks.nan_monitor",
    "callbacks.optimizer_monitor",
    "callbacks.speed_monitor",
    "callbacks.system_metrics_monitor",
    "callbacks.threshold_stopper",
    "core",
    "core.callback",
    "core.data_spec",
    "core.engine",
    "core.evaluator",
    "core.event",
    "core.precision",
    "core.serializable",
    "core.state",
    "core.time",
    "core.types",
    "loggers",
    "loggers.logger",
    "loggers.logger_destination",
    "metrics",
    "models",
    "models.base",
    "optim",
    "optim.decoupled_weight_decay",
    "optim.scheduler",
    "trainer",
    "utils",
    "utils.dist",
    "utils.reproducibility",
]
"""Modules of Composer that are files here."""

MODULES = ModuleTable(_PACKAGE, _EXPORTS, _REFUSED, _FILES)
"""The modules, of which the package registers those that are no files."""

package_getattr = MODULES.getattr_of
"""Returns the `__getattr__` of a module that is a file: of its names, submodules and refusals."""


def attach_stub(
    module: str,
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package: of its stub's names and paths."""
    homes = stub_homes(module)
    names = sorted(homes)
    return package_getattr(module, homes), lambda: names, names
