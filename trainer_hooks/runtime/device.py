"""Pick the device of a run from `accelerator`, `devices` and `strategy`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from trainer_hooks.errors import OptionError, nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["pick_device"]

_ACCELERATORS = ("auto", "cpu", "cuda", "gpu", "mps")
_STRATEGIES = ("auto", "single_device")


def pick_device(
    accelerator: str, devices: int | str | Sequence[int], strategy: str, num_nodes: int = 1
) -> torch.device:
    """Return the one device that a run uses.

    Args:
        accelerator: `"auto"` (CUDA, then MPS, then the CPU), `"cpu"`, `"cuda"`, `"gpu"`, `"mps"`.
        devices: `"auto"`, `1`, or a list with one index, as `[2]` or `"2,"`.
        strategy: `"auto"` or `"single_device"`.
        num_nodes: 1.

    Raises:
        OptionError: a value is unknown, asks for several processes, or for hardware that is
            not there.
    """
    if strategy not in _STRATEGIES:
        raise OptionError(
            f"Trainer(strategy={strategy!r}): must be one of {', '.join(_STRATEGIES)}; training in "
            "several processes is not available yet. Leave it at 'auto'."
        )
    if num_nodes != 1:
        raise OptionError(
            f"Trainer(num_nodes={num_nodes!r}): must be 1; training on several machines is not "
            "available yet."
        )
    if accelerator not in _ACCELERATORS:
        raise OptionError(
            f"Trainer(accelerator={accelerator!r}): must be one of {', '.join(_ACCELERATORS)}."
            f"{nearest(str(accelerator), _ACCELERATORS)}"
        )
    index = _device_index(devices)
    kind = _available_kind(accelerator)
    if kind != "cuda":
        return torch.device(kind)
    count = torch.cuda.device_count()
    if index >= count:
        raise OptionError(
            f"Trainer(devices={devices!r}): this machine has {count} CUDA device(s), numbered "
            f"0 to {count - 1}."
        )
    return torch.device("cuda", index)


def _available_kind(accelerator: str) -> str:
    has_cuda = torch.cuda.is_available()
    has_mps = torch.backends.mps.is_available()
    if accelerator in {"auto", "gpu"}:
        if has_cuda:
            return "cuda"
        if has_mps:
            return "mps"
        if accelerator == "auto":
            return "cpu"
    missing = {"cuda": not has_cuda, "mps": not has_mps, "gpu": True}.get(accelerator, False)
    if missing:
        raise OptionError(
            f"Trainer(accelerator={accelerator!r}): torch {torch.__version__} finds no such device "
            "on this machine. Use accelerator='auto' or 'cpu'."
        )
    return accelerator


def _device_index(devices: int | str | Sequence[int]) -> int:
    """Return the index of the one device asked for."""
    problem = OptionError(
        f"Trainer(devices={devices!r}): must be 'auto', 1, or a list with one index such as [0]; "
        "training on several devices is not available yet."
    )
    if devices == "auto":
        return 0
    if isinstance(devices, str):
        text = devices.strip()
        try:
            indices = [int(part) for part in text.split(",") if part.strip()]
        except ValueError:
            raise problem from None
        if "," not in text and indices not in ([1], [-1]):
            raise problem
        devices = indices if "," in text else 1
    if isinstance(devices, bool):
        raise problem
    if isinstance(devices, int):
        if devices not in (1, -1) or (devices == -1 and torch.cuda.device_count() > 1):
            raise problem
        return 0
    if not isinstance(devices, list | tuple) or len(devices) != 1:
        raise problem
    index = devices[0]
    if isinstance(index, bool) or not isinstance(index, int) or index < 0:
        raise problem
    return index
