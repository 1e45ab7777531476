"""SystemMetricsMonitor: log the use of processor, memory, disk, network and GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from trainer_hooks._options import one_of, option_rules
from trainer_hooks.callbacks.base import is_evaluation_logged, will_be_logged
from trainer_hooks.callbacks.device_statistics import StatisticsReader
from trainer_hooks.compat.composer.core.built_in import ComposerBuiltIn

if TYPE_CHECKING:
    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module

__all__ = ["SystemMetricsMonitor"]

_WHERE = "SystemMetricsMonitor"
_NVML_NAMES = {
    "gpu_percentage": "nvml.utilization_percent",
    "gpu_temperature_C": "nvml.temperature_celsius",
    "gpu_power_usage_W": "nvml.power_watts",
}


class SystemMetricsMonitor(StatisticsReader, ComposerBuiltIn):  # type: ignore[misc] # run_event
    """Log the use of processor, memory, disk, network and GPU, under Composer's names.

    The metrics are `cpu_percentage`, and psutil's statistics of the memory (`cpu_memory_total`,
    `cpu_memory_used`, `cpu_memory_percent`, ...), the disk (`disk_memory_...`) and the network
    (`network_bytes_sent`, ...), sizes in bytes. On a CUDA device where the package nvidia-ml-py is
    installed, there are also `gpu_percentage`, `memory_percentage`,
    `gpu_temperature_C` and `gpu_power_usage_W`, each as `min_..._rank_0` and `max_..._rank_0`, and
    with `log_all_data` as `..._rank_0`.

    It logs at the start of a training batch each `log_every_n_steps` steps, and at the start of
    each `log_every_n_steps`-th batch of a validation, test or prediction.

    Args:
        log_all_data: whether to log each device's values too, beside the extremes of all devices.

    State: none.

    Raises:
        OptionError: the argument is outside its rule.
        UsageError: psutil is not installed.

    Example::

        from trainer_hooks.compat.composer.callbacks import SystemMetricsMonitor

        trainer = Trainer(
            max_epochs=2, logger=CSVLogger("logs"), callbacks=[SystemMetricsMonitor()]
        )
        trainer.fit(module, train_loader, val_loader)
    """

    volatile_state: ClassVar[frozenset[str]] = frozenset({"cpu_*", "disk_*", "network_*", "gpu_*"})

    @option_rules(log_all_data=one_of(False, True))
    def __init__(self, log_all_data: bool = False) -> None:
        self.log_all_data = log_all_data

    def setup(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Open the sources of the statistics."""
        self.open_sources(trainer, _WHERE)

    def on_train_batch_start(
        self, trainer: Trainer, module: Module, batch: Any, batch_idx: int
    ) -> None:
        """Log if it is due."""
        progress = trainer.progress
        if will_be_logged(trainer) and progress.batches_in_window == 0:
            self._log(trainer, progress.batches_stepped)

    def on_validation_batch_start(
        self, trainer: Trainer, module: Module, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Log if it is due."""
        if is_evaluation_logged(trainer, batch_idx):
            # as in Composer, the number of trained batches
            self._log(trainer, trainer.progress.batches_stepped)

    on_test_batch_start = on_predict_batch_start = on_validation_batch_start

    def _log(self, trainer: Trainer, step: int) -> None:
        """Log the current statistics."""
        if trainer.loggers:
            trainer.log_metrics({**self._host_metrics(), **self._device_metrics()}, step)

    def _host_metrics(self) -> dict[str, float]:
        psutil = self._psutil
        parts = {
            "cpu_memory": psutil.virtual_memory(),
            "disk_memory": psutil.disk_usage("/"),
            "network": psutil.net_io_counters(),
        }
        metrics = {"cpu_percentage": float(psutil.cpu_percent())}
        for part, values in parts.items():
            if values is not None:  # None where there is no network
                metrics.update({f"{part}_{name}": float(v) for name, v in values._asdict().items()})
        return metrics

    def _device_metrics(self) -> dict[str, float]:
        if self._nvml is None:
            return {}
        stats = self._nvml.read()
        share = 100 * stats["nvml.memory_used_bytes"] / stats["nvml.memory_total_bytes"]
        values = {name: stats[key] for name, key in _NVML_NAMES.items() if key in stats}
        values["memory_percentage"] = share
        metrics = {}
        for name, value in values.items():
            # one process, so one device: its values are the minimum and the maximum, too
            for prefix in ("min_", "max_", *(("",) if self.log_all_data else ())):
                metrics[f"{prefix}{name}_rank_0"] = value
        return metrics
