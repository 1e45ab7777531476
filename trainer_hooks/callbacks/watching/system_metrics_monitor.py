"""SystemMetricsMonitor: log what the machine is busy with, under Composer's names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.monitoring import check_choice
from trainer_hooks.callbacks.watching.device_stats import Nvml, psutil_for
from trainer_hooks.callbacks.watching.due import evaluation_step, will_be_logged

if TYPE_CHECKING:
    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["SystemMetricsMonitor"]

_WHERE = "SystemMetricsMonitor"
_OF_DEVICE = {
    "gpu_percentage": "nvml.utilization_percent",
    "gpu_temperature_C": "nvml.temperature_celsius",
    "gpu_power_usage_W": "nvml.power_watts",
}


class SystemMetricsMonitor(Callback):
    """Log what the machine is busy with, under Composer's names.

    These are `cpu_percentage`, and in bytes, but for the percentages, what psutil says of the
    memory (`cpu_memory_total`, `cpu_memory_used`, `cpu_memory_percent`, ...), the disk
    (`disk_memory_...`) and the network (`network_bytes_sent`, ...). On a CUDA device where the
    package nvidia-ml-py is installed, also `gpu_percentage`, `memory_percentage`,
    `gpu_temperature_C` and `gpu_power_usage_W`, each as `min_..._rank_0` and `max_..._rank_0`, and
    with `log_all_data` as `..._rank_0`.

    The machine is asked as a training batch begins, each `log_every_n_steps` steps, and as each
    `log_every_n_steps`-th batch of a validation, test or prediction begins; in between nothing is.

    Args:
        log_all_data: whether each device's values are logged too, and not their extremes alone.

    State: none.

    Raises:
        OptionError: the argument is outside its rule.
        UsageError: psutil is not installed.

    Example::

        trainer = Trainer(
            max_epochs=2, logger=CSVLogger("logs"), callbacks=[SystemMetricsMonitor()]
        )
        trainer.fit(module, train_loader, val_loader)
    """

    volatile_state: ClassVar[frozenset[str]] = frozenset({"cpu_*", "disk_*", "network_*", "gpu_*"})

    def __init__(self, log_all_data: bool = False) -> None:
        self.log_all_data: bool = check_choice("log_all_data", log_all_data, _WHERE, (False, True))
        self._psutil: Any = None
        self._nvml: Nvml | None = None

    def setup(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Find what to ask."""
        self._psutil = psutil_for(_WHERE)
        self._psutil.cpu_percent()  # the share is that since the call before
        if trainer.device.type == "cuda":
            self._nvml = Nvml.of(trainer.device)

    def teardown(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Let go of the driver."""
        if self._nvml is not None:
            self._nvml.close()
        self._nvml = self._psutil = None

    def on_train_batch_start(
        self, trainer: Trainer, module: Module, batch: Any, batch_idx: int
    ) -> None:
        """Log, if it is due."""
        progress = trainer.progress
        if will_be_logged(trainer) and progress.batches_in_window == 0:
            self._log(trainer, progress.batches_stepped)

    def on_validation_batch_start(
        self, trainer: Trainer, module: Module, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Log, if it is due."""
        self._log_evaluation(trainer, batch_idx)

    def on_test_batch_start(
        self, trainer: Trainer, module: Module, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Log, if it is due."""
        self._log_evaluation(trainer, batch_idx)

    def on_predict_batch_start(
        self, trainer: Trainer, module: Module, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Log, if it is due."""
        self._log_evaluation(trainer, batch_idx)

    def _log_evaluation(self, trainer: Trainer, batch_idx: int) -> None:
        step = evaluation_step(trainer, batch_idx)
        if step is not None:
            self._log(trainer, step)

    def _log(self, trainer: Trainer, step: int) -> None:
        """Hand what the machine says now to the loggers."""
        if trainer.loggers:
            trainer.log_metrics({**self._of_host(), **self._of_device()}, step)

    def _of_host(self) -> dict[str, float]:
        psutil = self._psutil
        parts = {
            "cpu_memory": psutil.virtual_memory(),
            "disk_memory": psutil.disk_usage("/"),
            "network": psutil.net_io_counters(),
        }
        found = {"cpu_percentage": float(psutil.cpu_percent())}
        for part, values in parts.items():
            if values is not None:  # as where there is no network
                found.update({f"{part}_{name}": float(v) for name, v in values._asdict().items()})
        return found

    def _of_device(self) -> dict[str, float]:
        if self._nvml is None:
            return {}
        stats = self._nvml.read()
        share = 100 * stats["nvml.memory_used_bytes"] / stats["nvml.memory_total_bytes"]
        values = {name: stats[said] for name, said in _OF_DEVICE.items() if said in stats}
        values["memory_percentage"] = share
        found = {}
        for name, value in values.items():
            for prefix in ("min_", "max_", *(("",) if self.log_all_data else ())):
                found[f"{prefix}{name}_rank_0"] = value
        return found
