"""What processors and accelerators say of themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

__all__ = ["Nvml", "cpu_stats", "cuda_memory_stats", "psutil_for"]


def psutil_for(where: str) -> ModuleType:
    """Return psutil.

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
    """Return how much of the processor, the memory and the swap space is in use, in percent.

    The processor's share is that since the call before.
    """
    return {
        "cpu_percent": float(psutil.cpu_percent()),
        "cpu_vm_percent": float(psutil.virtual_memory().percent),
        "cpu_swap_percent": float(psutil.swap_memory().percent),
    }


def cuda_memory_stats(device: torch.device) -> dict[str, float]:
    """Return what torch's allocator counts, under torch's names; bytes where it is about bytes."""
    return {name: float(value) for name, value in torch.cuda.memory_stats(device).items()}


class Nvml:
    """What the driver says of one CUDA device: use, memory, temperature, power.

    Args:
        device: the device.
    """

    def __init__(self, device: torch.device) -> None:
        import pynvml  # type: ignore[import-untyped, import-not-found, unused-ignore]

        self._nvml: Any = pynvml
        self._nvml.nvmlInit()
        # torch numbers only the devices that it may see, so it is found by its own name
        uuid = str(torch.cuda.get_device_properties(device).uuid)
        name = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
        self._handle = self._nvml.nvmlDeviceGetHandleByUUID(name.encode())

    @classmethod
    def of(cls, device: torch.device) -> Nvml | None:
        """Return what asks the driver about a device, or None where pynvml is not installed."""
        try:
            return cls(device)
        except ImportError:
            return None

    def read(self) -> dict[str, float]:
        """Return percent of use, bytes of memory, degrees Celsius and watts."""
        nvml, handle = self._nvml, self._handle
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        found = {"memory_used_bytes": memory.used, "memory_total_bytes": memory.total}
        asks: dict[str, Callable[[], float]] = {
            "utilization_percent": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu,
            "temperature_celsius": lambda: nvml.nvmlDeviceGetTemperature(handle, 0),
            "power_watts": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
        }
        for name, ask in asks.items():
            try:
                found[name] = ask()
            except nvml.NVMLError_NotSupported:  # as on a part of a device that is shared out
                continue
        return {f"nvml.{name}": float(value) for name, value in found.items()}

    def close(self) -> None:
        """Let go of the driver."""
        self._nvml.nvmlShutdown()
