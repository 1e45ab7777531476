"""DeviceStatsMonitor and SystemMetricsMonitor: log the use of device, processor and machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch

from trainer_hooks._options import one_of, option_rules
from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.base import evaluation_step, is_logged, require_logger, will_be_logged
from trainer_hooks.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module


def require_psutil(where: str) -> ModuleType:
    """Import psutil.

    Args:
        where: the callback that needs it, for the message.

    Raises:
        UsageError: it is not installed.
    """
    try:
        import psutil  # type: ignore[import-untyped, import-not-found, unused-ignore]
    except ImportError as error:
        raise UsageError(
            f"{where} reads the processor's statistics with the package psutil, which is not "
            "installed: pip install 'trainer-hooks[monitor]'."
        ) from error
    module: ModuleType = psutil
    return module


def cpu_stats(psutil: Any) -> dict[str, float]:
    """Return the use of the processor, the memory and the swap space, in percent.

    The processor's use is the mean since the last call.
    """
    return {
        "cpu_percent": float(psutil.cpu_percent()),
        "cpu_vm_percent": float(psutil.virtual_memory().percent),
        "cpu_swap_percent": float(psutil.swap_memory().percent),
    }


class Nvml:
    """Reads a CUDA device's use, memory, temperature and power from its driver.

    Args:
        device: the device.
    """

    def __init__(self, device: torch.device) -> None:
        import pynvml  # type: ignore[import-untyped, import-not-found, unused-ignore]

        self._nvml: Any = pynvml
        self._nvml.nvmlInit()
        # by its unique id: torch numbers only the devices in CUDA_VISIBLE_DEVICES, the driver all
        uuid = str(torch.cuda.get_device_properties(device).uuid)
        name = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
        self._handle = self._nvml.nvmlDeviceGetHandleByUUID(name.encode())

    @classmethod
    def of(cls, device: torch.device) -> Nvml | None:
        """Return a reader of a device, or None where pynvml is not installed."""
        try:
            return cls(device)
        # only a missing package is tolerated: a driver that does not answer is an error
        except ImportError:
            return None

    def read(self) -> dict[str, float]:
        """Return use in percent, memory in bytes, temperature in degrees Celsius, power in W."""
        nvml, handle = self._nvml, self._handle
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        stats = {"memory_used_bytes": memory.used, "memory_total_bytes": memory.total}
        readers: dict[str, Callable[[], float]] = {
            "utilization_percent": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu,
            # 0 is the sensor of the GPU's chip
            "temperature_celsius": lambda: nvml.nvmlDeviceGetTemperature(handle, 0),
            # the driver gives milliwatts
            "power_watts": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
        }
        for name, reader in readers.items():
            try:
                stats[name] = reader()
            except nvml.NVMLError_NotSupported:  # a MIG partition has no such statistics
                continue
        return {f"nvml.{name}": float(value) for name, value in stats.items()}

    def close(self) -> None:
        """Close the connection to the driver."""
        # the driver counts its users: others in this process keep their connection
        self._nvml.nvmlShutdown()


class _StatisticsReader(Callback):
    """Base class of callbacks that read psutil and the device's driver while a run lasts."""

    _psutil: Any = None
    _nvml: Nvml | None = None

    def _open(self, trainer: Trainer, where: str, *, reads_host: bool = True) -> None:
        """Open the sources of the statistics."""
        if reads_host:
            self._psutil = require_psutil(where)
            self._psutil.cpu_percent()  # begins the interval whose mean the next call returns
        if trainer.device.type == "cuda":
            self._nvml = Nvml.of(trainer.device)

    def teardown(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Close the connection to the driver."""
        if self._nvml is not None:
            self._nvml.close()
        self._nvml = self._psutil = None


_WHERE = "DeviceStatsMonitor"


class DeviceStatsMonitor(_StatisticsReader):
    """Log the use of the device before and after batches.

    In training it logs at the batches whose metrics are logged (`log_every_n_steps`), in a
    validation or test at each `log_every_n_steps`-th batch. The names are Lightning's, such as
    `DeviceStatsMonitor.on_train_batch_start/cpu_percent`.

    On a CUDA device it logs all counters of `torch.cuda.memory_stats`, and, where the package
    nvidia-ml-py is installed, values of the driver: `nvml.utilization_percent`,
    `nvml.memory_used_bytes`, `nvml.temperature_celsius`, `nvml.power_watts`. On the CPU it logs
    `cpu_percent`, `cpu_vm_percent` and `cpu_swap_percent`.

    Args:
        cpu_stats: whether to log the processor's statistics: None only where the run is on the CPU,
            True beside those of another device too, False never.

    State: none.

    Raises:
        OptionError: the argument is outside its rule.
        UsageError: there is no logger, or psutil, which reads the processor's statistics, is not
            installed.

    Example::

        monitor = DeviceStatsMonitor()
        trainer = Trainer(max_epochs=2, logger=CSVLogger("logs"), callbacks=[monitor])
        trainer.fit(module, train_loader)
    """

    volatile_state: ClassVar[frozenset[str]] = frozenset({f"{_WHERE}.*"})

    @option_rules(cpu_stats=one_of(None, True, False))
    def __init__(self, cpu_stats: bool | None = None) -> None:
        self._cpu_stats = cpu_stats
        self._is_on = False

    def setup(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Check that there is a logger, and open the sources of the statistics."""
        self._is_on = bool(trainer.loggers)
        if not self._is_on:
            if stage == "fit":
                require_logger(trainer, _WHERE)
            return
        on_cpu = trainer.device.type == "cpu"
        self._open(
            trainer, _WHERE, reads_host=on_cpu if self._cpu_stats is None else self._cpu_stats
        )

    def teardown(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Close the connection to the driver."""
        super().teardown(trainer, module, stage)
        self._is_on = False

    def on_train_batch_start(
        self, trainer: Trainer, module: Module, batch: Any, batch_idx: int
    ) -> None:
        """Log if the metrics of this batch are logged."""
        if self._is_on and _closes_logged_window(trainer):
            self._log(trainer, "on_train_batch_start", trainer.progress.batches_stepped)

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Log if the metrics of this batch are logged."""
        if self._is_on and is_logged(trainer):
            # the counter has this batch's step by now
            self._log(trainer, "on_train_batch_end", trainer.progress.batches_stepped - 1)

    def on_validation_batch_start(
        self, trainer: Trainer, module: Module, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Log at each `log_every_n_steps`-th batch."""
        self._log_evaluation(trainer, "batch_start", batch_idx)

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        module: Module,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Log at each `log_every_n_steps`-th batch."""
        self._log_evaluation(trainer, "batch_end", batch_idx)

    on_test_batch_start, on_test_batch_end = on_validation_batch_start, on_validation_batch_end

    def _log_evaluation(self, trainer: Trainer, moment: str, batch_idx: int) -> None:
        step = evaluation_step(trainer, batch_idx)
        if self._is_on and step is not None:
            stage = "test" if trainer.state.fn == "test" else "validation"
            self._log(trainer, f"on_{stage}_{moment}", step)

    def _log(self, trainer: Trainer, hook: str, step: int) -> None:
        """Log the current statistics under the name of a hook."""
        stats: dict[str, float] = {}
        if trainer.device.type == "cuda":
            counters = torch.cuda.memory_stats(trainer.device)
            stats.update({name: float(value) for name, value in counters.items()})
        if self._nvml is not None:
            stats.update(self._nvml.read())
        if self._psutil is not None:
            stats.update(cpu_stats(self._psutil))
        if stats:
            prefix = f"{type(self).__qualname__}.{hook}"
            named = {f"{prefix}/{name}": value for name, value in stats.items()}
            trainer.log_metrics(named, step)


def _closes_logged_window(trainer: Trainer) -> bool:
    """Return whether the batch that starts ends an accumulation window that is logged."""
    is_last = trainer.progress.batches_in_window + 1 >= trainer.accumulate_grad_batches
    return will_be_logged(trainer) and (trainer.is_last_batch or is_last)


_SYSTEM_METRICS = "SystemMetricsMonitor"
_NVML_NAMES = {
    "gpu_percentage": "nvml.utilization_percent",
    "gpu_temperature_C": "nvml.temperature_celsius",
    "gpu_power_usage_W": "nvml.power_watts",
}


class SystemMetricsMonitor(_StatisticsReader):
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
        self._open(trainer, _SYSTEM_METRICS)

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
        step = evaluation_step(trainer, batch_idx)
        if step is not None:
            self._log(trainer, step)

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
