"""Readers of device, processor and machine statistics, which `compat` builds on, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks.callback import Callback
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


class StatisticsReader(Callback):
    """Base class of callbacks that read psutil and the device's driver while a run lasts."""

    _psutil: Any = None
    _nvml: Nvml | None = None

    def open_sources(self, trainer: Trainer, where: str, *, reads_host: bool = True) -> None:
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
