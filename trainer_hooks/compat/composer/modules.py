"""The modules of Composer's package: a table of those that are no files here.

Code for Composer imports from its many small modules. Those with code of their own are files; the
others are made from the table when `trainer_hooks.compat.composer` is imported.
"""

from __future__ import annotations

from functools import partial

from trainer_hooks import _lazy
from trainer_hooks.compat.virtual_modules import ModuleTable

__all__ = ["MODULES", "attach_stub", "package_getattr"]

_PACKAGE = "trainer_hooks.compat.composer"
_CALLBACKS = f"{_PACKAGE}.callbacks"
_TRACKERS = f"{_PACKAGE}.loggers.experiment_trackers"
_DESTINATIONS = f"{_PACKAGE}.loggers.logger_destination"
_METRICS = f"{_PACKAGE}.metrics"
_MODELS = f"{_PACKAGE}.models.base"
_HELPERS = f"{_PACKAGE}.utils.helpers"
_SHARED_CALLBACKS = (
    "free_outputs.FreeOutputs",
    "generate.Generate",
    "load_checkpoint.LoadCheckpoint",
    "memory_snapshot.MemorySnapshot",
    "mlperf.MLPerfCallback",
    "oom_observer.OOMObserver",
    "runtime_estimator.RuntimeEstimator",
)
_EXPORTS = (
    # modules of Composer, module that defines the names, the names
    *((f"callbacks.{path}", _CALLBACKS, name)
      for path, name in (row.split(".") for row in _SHARED_CALLBACKS)),
    ("callbacks.grad_monitor", _CALLBACKS, "GradMonitor"),  # of older releases
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

_FILES = [
    "callbacks",
    "callbacks.checkpoint_saver",
    "callbacks.early_stopper",
    "callbacks.export_for_inference",
    "callbacks.image_visualizer",
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

MODULES = ModuleTable(_PACKAGE, _EXPORTS, __file__, _FILES)
"""The modules, of which the package registers those that are no files."""

package_getattr = MODULES.getattr_of
"""Returns the `__getattr__` of a module that is a file: of its names, submodules and refusals."""

attach_stub = partial(_lazy.attach_stub, make_getattr=package_getattr)
"""Returns `__getattr__`, `__dir__` and `__all__` of a package with a stub."""
