"""Starting: the processes that the only one there is has to start the others of."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from trainer_hooks.errors import OptionError
from trainer_hooks.runtime.topology import NOTEBOOK, SCRIPT, SINGLE_PROCESS, Topology

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["require_one", "to_start", "wanted"]


def to_start(
    forks: bool,
    devices: int | str | Sequence[int],
    num_nodes: int,
    environ: Mapping[str, str] | None,
) -> Topology:
    """Return the processes that one process is to become; nothing is started yet.

    Args:
        forks: whether they are to be forked, in a script, too.
        devices: as the Trainer takes it.
        num_nodes: likewise.
        environ: the environment; that of this process unless given.

    Raises:
        OptionError: another launcher has started this one, or must.
    """
    _require_one_machine(num_nodes)
    count = wanted(devices)
    if count is None or count < 2:
        return SINGLE_PROCESS
    is_grouped = dist.is_available() and dist.is_initialized()
    if is_grouped or "RANK" in (os.environ if environ is None else environ):
        there = "a process group of one process" if is_grouped else "torchrun with one process"
        raise OptionError(
            f"Trainer(devices={devices!r}): {there} is there, and the Trainer would start "
            f"{count - 1} more beside it. Start it with torchrun --nproc-per-node {count}, or "
            "without a launcher."
        )
    from trainer_hooks.runtime.launch import can_start_again

    is_script = not forks and can_start_again()
    if not is_script:
        # or looking for GPUs would keep a forked process from using them
        os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    return Topology(
        count,
        local_world_size=count,
        launcher=SCRIPT if is_script else NOTEBOOK,
        starts="script" if is_script else "fork",
        reason=f"devices={devices!r}",
    )


def require_one(devices: int | str | Sequence[int], num_nodes: int) -> None:
    """Make sure that one process is all that is asked for.

    Raises:
        OptionError: more are.
    """
    _require_one_machine(num_nodes)
    count = wanted(devices)
    if count is not None and count > 1:
        raise OptionError(
            f"Trainer(strategy='single_device', devices={devices!r}): each device takes a process. "
            "Leave strategy at 'auto', or devices."
        )


def _require_one_machine(num_nodes: int) -> None:
    if num_nodes != 1:
        raise OptionError(
            f"Trainer(num_nodes={num_nodes!r}): this is one process on one machine. Start it on "
            f"each of them with torchrun --nnodes {num_nodes} --nproc-per-node N --rdzv-endpoint "
            "HOST:PORT train.py, or leave num_nodes out."
        )


def wanted(devices: int | str | Sequence[int]) -> int | None:
    """Return how many devices of a machine are asked for; None where that is left open."""
    if isinstance(devices, bool):
        return None  # `pick_device` says what is wrong with it
    if devices in (-1, "-1") and torch.cuda.device_count() > 1:
        return torch.cuda.device_count()
    if isinstance(devices, int):
        return devices if devices > 0 else None
    if isinstance(devices, str):
        text = devices.strip()
        if "," in text:
            return len([part for part in text.split(",") if part.strip()])
        return int(text) if text.isdecimal() and int(text) else None
    return len(devices) if isinstance(devices, list | tuple) else None
