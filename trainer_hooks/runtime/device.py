"""Pick the device of a run from `accelerator` and `devices`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch

from trainer_hooks.errors import OptionError, nearest
from trainer_hooks.runtime.topology import SINGLE_PROCESS, Topology

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["pick_device", "usable_cpus"]

_ACCELERATORS = ("auto", "cpu", "cuda", "gpu", "mps")


def pick_device(
    accelerator: str,
    devices: int | str | Sequence[int],
    topology: Topology = SINGLE_PROCESS,
) -> torch.device:
    """Return the one device that this process uses.

    Args:
        accelerator: `"auto"` (CUDA, then MPS, then the CPU), `"cpu"`, `"cuda"`, `"gpu"`, `"mps"`.
        devices: `"auto"`, a number, or a list of indices, as `[2]` or `"2,"`; of several
            processes each takes the one at its local rank.
        topology: which process this is.

    Raises:
        OptionError: a value is unknown, asks for several processes, or for hardware that is
            not there.
    """
    if accelerator not in _ACCELERATORS:
        raise OptionError(
            f"Trainer(accelerator={accelerator!r}): must be one of {', '.join(_ACCELERATORS)}."
            f"{nearest(str(accelerator), _ACCELERATORS)}"
        )
    is_one = topology.world_size == 1
    index = _device_index(devices) if is_one else _index_of_rank(devices, topology.local_rank)
    kind = _available_kind(accelerator)
    if kind == "mps" and topology.world_size > 1:
        if accelerator != "auto":
            raise OptionError(
                f"Trainer(accelerator={accelerator!r}): torch has no collectives for MPS, so that "
                "several processes cannot train on it. Use accelerator='cpu', or one process."
            )
        kind = "cpu"
    if kind != "cuda":
        return torch.device(kind)
    count = torch.cuda.device_count()
    # of processes that are yet to be started, all
    ranks = range(topology.world_size) if topology.starts else [topology.local_rank]
    all_asked = [index] if is_one else [_index_of_rank(devices, rank) for rank in ranks]
    if max(all_asked) >= count:
        raise OptionError(
            f"Trainer(devices={devices!r}): this machine has {count} CUDA device(s), numbered "
            f"0 to {count - 1}, and device {max(all_asked)} is asked for. Ask for others, or start "
            "fewer processes."
        )
    if topology.starts == "fork":
        return torch.device("cpu")  # only what is forked from here may touch a GPU
    return torch.device("cuda", index)


def usable_cpus() -> int:
    """Return how many CPUs this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


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


def _index_of_rank(devices: int | str | Sequence[int], local_rank: int) -> int:
    """Return the index of the device of one process among several; their number fits."""
    if isinstance(devices, str) and "," in devices:
        devices = [int(part) for part in devices.split(",") if part.strip()]
    if isinstance(devices, list | tuple):
        return int(devices[local_rank])
    return local_rank


def _device_index(devices: int | str | Sequence[int]) -> int:
    """Return the index of the one device asked for."""
    problem = OptionError(
        f"Trainer(devices={devices!r}): must be 'auto', 1, or a list with one index such as [0], "
        "in one process."
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
